package server

import (
	"errors"
	"os"
	"sync"

	"hotbed/dataplane/twochoice/redirectlog"
)

// folder is a listable folder that makes names durable for all concurrent callers with one sync.
type folder struct {
	*redirectlog.Folder
	path string

	mu      sync.Mutex
	ended   sync.Cond
	wanted  uint64 // calls so far
	durable uint64 // calls covered by a later sync
	running bool
	err     error // permanent: it is unknown what is durable
}

func openFolder(path string) (*folder, error) {
	opened, err := redirectlog.OpenFolder(path)
	if err != nil {
		return nil, err
	}
	f := &folder{Folder: opened, path: path}
	f.ended.L = &f.mu
	return f, nil
}

// List returns the names of all files.
func (f *folder) List() ([]string, error) {
	dir, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	return names, errors.Join(err, dir.Close())
}

// SyncFolder makes names durable.
func (f *folder) SyncFolder() error {
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
		err := f.Folder.SyncFolder()
		f.mu.Lock()
		f.running, f.durable, f.err = false, upTo, err
		f.ended.Broadcast()
	}
	return f.err
}
