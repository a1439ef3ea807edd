package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// lookEach is how often a file of proxies is looked at.
const lookEach = time.Second

// listed is a file that names a store's proxies, as a deployment leaves it on its clients: JSON with a
// list "proxies". It is read again when it changes: proxies come and go while a workload runs. All
// workers have the same one.
type listed struct {
	path string

	mu        sync.Mutex
	due       time.Time
	seen      os.FileInfo
	version   uint64
	addresses []string
	port      string
}

var files = struct {
	sync.Mutex
	byPath map[string]*listed
}{byPath: map[string]*listed{}}

// listedIn is the file at a path; port is that of addresses without one.
func listedIn(path, port string) (*listed, error) {
	files.Lock()
	defer files.Unlock()
	if l := files.byPath[path+" "+port]; l != nil {
		return l, nil
	}
	l := &listed{path: path, port: port}
	if err := l.look(); err != nil {
		return nil, fmt.Errorf("proxies_file %s: %w", path, err)
	}
	files.byPath[path+" "+port] = l
	return l, nil
}

// now is what the file names, and which version of that it is. A file that cannot be read, or that names
// nobody, leaves things as they were: then nobody else is known to ask.
func (l *listed) now() (version uint64, addresses []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.After(l.due) {
		l.due = now.Add(lookEach)
		_ = l.look()
	}
	return l.version, l.addresses
}

func (l *listed) look() error {
	info, err := os.Stat(l.path)
	if err != nil {
		return errors.New("it cannot be read")
	}
	// It is replaced by another file, not written again.
	if l.seen != nil && os.SameFile(l.seen, info) && info.ModTime().Equal(l.seen.ModTime()) && info.Size() == l.seen.Size() {
		return nil
	}
	data, err := os.ReadFile(l.path)
	if err != nil {
		return errors.New("it cannot be read")
	}
	var content struct {
		Proxies []string `json:"proxies"`
	}
	if json.Unmarshal(data, &content) != nil || len(content.Proxies) == 0 {
		return errors.New(`it is no JSON with a list "proxies" of one address or more`)
	}
	found, err := each(content.Proxies, l.port)
	if err != nil {
		return err
	}
	l.seen = info
	if !slices.Equal(found, l.addresses) {
		l.addresses = found
		l.version++
	}
	return nil
}
