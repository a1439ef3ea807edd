// Package redirectlog keeps a redirect table (dataplane/twochoice) on disk: an append-only file of
// checksummed frames. It is read again after a crash, and rewritten when mostly dead.
//
// It uses a small file interface (FS), so that a simulation can inject faults.
package redirectlog

import "io"

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
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Size() (int64, error)
	// Sync makes all writes durable. After an error, it is unknown which writes are durable.
	Sync() error
}
