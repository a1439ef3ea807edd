package filestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"hotbed/dataplane/twochoice/redirectlog"
)

// Folder is an FS on an operating system folder. Only one process can own it. It makes names durable
// for all concurrent callers with one sync.
type Folder struct {
	path string
	dir  *os.File

	mu      sync.Mutex
	ended   sync.Cond
	wanted  uint64 // calls of SyncFolder so far
	durable uint64 // calls covered by a later sync
	running bool
	err     error // permanent: it is unknown what is durable
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
			return nil, fmt.Errorf("the folder %s is in use by another agent; stop that one first, or give each OSD a folder "+
				"of its own", path)
		}
		return nil, fmt.Errorf("the folder %s cannot be locked: %w", path, err)
	}
	f := &Folder{path: path, dir: dir}
	f.ended.L = &f.mu
	return f, nil
}

// Open opens an existing file.
func (f *Folder) Open(name string) (redirectlog.File, error) { return f.open(name, 0) }

// Create creates an empty file, or truncates an existing one.
func (f *Folder) Create(name string) (redirectlog.File, error) {
	return f.open(name, os.O_CREATE|os.O_TRUNC)
}

// Ensure opens a file with its content, and creates it if it does not exist.
func (f *Folder) Ensure(name string) (redirectlog.File, error) { return f.open(name, os.O_CREATE) }

func (f *Folder) open(name string, flags int) (redirectlog.File, error) {
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

// List returns the names of all files.
func (f *Folder) List() ([]string, error) {
	dir, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	return names, errors.Join(err, dir.Close())
}

// SyncFolder makes names durable.
func (f *Folder) SyncFolder() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wanted++
	mine := f.wanted
	for f.durable < mine && f.err == nil {
		if f.running {
			f.ended.Wait()
			continue
		}
		upTo := f.wanted
		f.running = true
		f.mu.Unlock()
		err := f.dir.Sync()
		f.mu.Lock()
		f.running, f.durable, f.err = false, upTo, err
		f.ended.Broadcast()
	}
	return f.err
}

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
