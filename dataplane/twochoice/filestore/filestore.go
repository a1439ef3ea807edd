// Package filestore keeps an object server's data: fragments of the two-choice protocol, the base of
// the objects that are at home there, and the redirect log. Its backend here is a folder of local
// files, closest to the prototype of Dai et al. (section V); radosstore adds pools.
//
// It uses the small file interface of redirectlog, so that the fault simulation can run the same
// code on disks that fill up, fail and lose unsynced data.
package filestore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"

	"hotbed/dataplane/twochoice/protocol"
	"hotbed/dataplane/twochoice/redirectlog"
)

// FS is a folder of files that can be listed.
type FS interface {
	redirectlog.FS
	// Ensure opens a file with its content, and creates the file if it does not exist.
	Ensure(name string) (redirectlog.File, error)
	// List returns the names of all files, in any order.
	List() ([]string, error)
}

// files keeps each object in a file. A fragment "f.<client>.<count>" is written as
// "t.<client>.<count>", synced and renamed, so a file with an f is complete.
type files struct {
	FS
	named sync.Map // bases with durable names
}

// OpenDisk opens a node's folder, or initializes an empty one, and removes leftovers of unfinished
// puts. OpenLog makes the names found durable.
func OpenDisk(fsys FS, node protocol.Node) (*Disk, Found, error) {
	names, err := fsys.List()
	if err != nil {
		return nil, Found{}, fmt.Errorf("the store cannot be listed: %w", err)
	}
	f := &files{FS: fsys}
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "b."):
			f.named.Store(name, nil)
		case strings.HasPrefix(name, "t."):
			if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, Found{}, fmt.Errorf("an unfinished fragment cannot be removed: %w", err)
			}
		}
	}
	store, fragments, err := NewStore(f, names, 0, 1)
	if err != nil {
		return nil, Found{}, err
	}
	return OpenLog(fsys, node, store, fragments)
}

// WriteFull writes a file under another name first.
func (f *files) WriteFull(name string, parts ...[]byte) error {
	temporary := "t" + name[1:]
	file, err := f.Create(temporary)
	if err != nil {
		return err
	}
	offset := int64(0)
	for _, part := range parts {
		if _, err = file.WriteAt(part, offset); err != nil {
			break
		}
		offset += int64(len(part))
	}
	if err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		if err = f.Rename(temporary, name); err == nil {
			if err = f.SyncFolder(); err == nil {
				return nil
			}
			temporary = name
		}
	}
	return errors.Join(err, f.Remove(temporary))
}

// Write writes a range while other ranges may be written. A write must not truncate an existing
// file, nor rely on another write to make a new name durable.
func (f *files) Write(name string, b []byte, offset uint64) error {
	file, err := f.Ensure(name)
	if err != nil {
		return err
	}
	if _, err = file.WriteAt(b, int64(offset)); err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if _, durable := f.named.Load(name); err != nil || durable {
		return err
	}
	if err = f.SyncFolder(); err == nil {
		f.named.Store(name, nil)
	}
	return err
}

// Read reads up to the file's end.
func (f *files) Read(name string, b []byte, offset uint64) (int, error) {
	file, err := f.Open(name)
	if err != nil {
		return 0, err
	}
	n, err := file.ReadAt(b, int64(offset))
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, errors.Join(err, file.Close())
}
