// Package redirectlog keeps a redirect table (dataplane/twochoice) on disk: an append-only file of
// checksummed frames. It is read again after a crash, and rewritten when mostly dead.
//
// It uses a small file interface (FS), so that a simulation can inject faults.
package redirectlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// FS is a folder of files. Errors that wrap fs.ErrNotExist and syscall.ENOSPC have their standard
// meaning. Writes without a Sync may be lost or partial after a crash, in any order. Name changes
// without a SyncFolder may be lost.
type FS interface {
	// Open opens an existing file, for reading and writing.
	Open(name string) (File, error)
	// Create creates an empty file, or truncates an existing one.
	Create(name string) (File, error)
	// Rename renames a file and replaces any file of that name, atomically. Open files stay open:
	// the renamed file under its new name, the replaced file without a name.
	Rename(from, to string) error
	// Remove removes a file.
	Remove(name string) error
	// SyncFolder makes names durable.
	SyncFolder() error
	// Path returns a file's name for messages.
	Path(name string) string
}

// File is an open file.
type File interface {
	ReadAt(p []byte, offset int64) (int, error)
	WriteAt(p []byte, offset int64) (int, error)
	Truncate(size int64) error
	Size() (int64, error)
	// Sync makes all writes durable. After an error, it is unknown which writes are durable.
	Sync() error
	Close() error
}

// Folder is an FS on an operating system folder. Only one process can own it.
type Folder struct {
	path string
	dir  *os.File
}

// OpenFolder locks a folder, and creates it if it does not exist. Close or the end of the process
// releases it. A folder that another process owns is an error.
func OpenFolder(path string) (*Folder, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = dir.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("the folder %s is in use by another agent; stop that one first, or give "+
				"each OSD a folder of its own", path)
		}
		return nil, fmt.Errorf("the folder %s cannot be locked: %w", path, err)
	}
	return &Folder{path, dir}, nil
}

// Open opens an existing file.
func (f *Folder) Open(name string) (File, error) { return f.open(name, 0) }

// Create creates an empty file, or truncates an existing one.
func (f *Folder) Create(name string) (File, error) { return f.open(name, os.O_CREATE|os.O_TRUNC) }

// Ensure opens a file with its content, and creates it if it does not exist.
func (f *Folder) Ensure(name string) (File, error) { return f.open(name, os.O_CREATE) }

func (f *Folder) open(name string, flags int) (File, error) {
	file, err := os.OpenFile(f.Path(name), os.O_RDWR|flags, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{file}, nil
}

// Rename renames a file and replaces any file of that name, atomically.
func (f *Folder) Rename(from, to string) error { return os.Rename(f.Path(from), f.Path(to)) }

// Remove removes a file.
func (f *Folder) Remove(name string) error { return os.Remove(f.Path(name)) }

// SyncFolder makes names durable.
func (f *Folder) SyncFolder() error { return f.dir.Sync() }

// Path returns a file's name for messages.
func (f *Folder) Path(name string) string { return filepath.Join(f.path, name) }

// Close releases the folder.
func (f *Folder) Close() error { return f.dir.Close() }

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
