// Package redirectlog keeps a redirect table (dataplane/twochoice) on disk: an append-only file of
// checksummed frames that is read again after a crash, and rewritten when most of it is dead.
//
// It goes through a small interface of files (FS), so that a simulation can put faults under it.
package redirectlog

// FS is a folder of files. Errors that wrap fs.ErrNotExist and syscall.ENOSPC mean what they do in
// the standard library. What Sync has not confirmed may be lost or half there after a crash, in any
// order; names that SyncFolder has not confirmed may be as before.
type FS interface {
	// Open opens a file that exists, for reading and writing.
	Open(name string) (File, error)
	// Create makes an empty file, or empties one.
	Create(name string) (File, error)
	// Rename gives a file another name and replaces a file of that name, atomically. Open files stay
	// open: the one that was renamed under its new name, the one replaced without any.
	Rename(from, to string) error
	// Remove removes a file.
	Remove(name string) error
	// SyncFolder makes names durable.
	SyncFolder() error
	// Path is what a file is called in messages.
	Path(name string) string
}

// File is an open file.
type File interface {
	ReadAt(p []byte, offset int64) (int, error)
	WriteAt(p []byte, offset int64) (int, error)
	Truncate(size int64) error
	Size() (int64, error)
	// Sync makes what was written durable. After an error it is not known what is.
	Sync() error
	Close() error
}
