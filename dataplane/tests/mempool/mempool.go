// Package mempool is a RADOS pool in memory, for tests.
package mempool

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Pool is a pool of objects. A test may change it between operations.
type Pool struct {
	Objects map[string][]byte
	Full    bool
	Refuse  string // if set, objects with this in their name find no space
	Reads   int
	mu      sync.Mutex
}

// New returns an empty pool.
func New() *Pool { return &Pool{Objects: map[string][]byte{}} }

// change replaces an object, which exists if `be` is set.
func (p *Pool) change(name string, be bool, change func(old []byte) []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, there := p.Objects[name]
	switch {
	case !be && (p.Full || p.Refuse != "" && strings.Contains(name, p.Refuse)):
		return syscall.ENOSPC
	case be && !there:
		return syscall.ENOENT
	}
	if data := change(old); data != nil {
		p.Objects[name] = data
	} else {
		delete(p.Objects, name)
	}
	return nil
}

// WriteFull creates or replaces an object.
func (p *Pool) WriteFull(name string, parts ...[]byte) error {
	return p.change(name, false, func([]byte) []byte { return append([]byte{}, slices.Concat(parts...)...) })
}

// Write writes at an offset.
func (p *Pool) Write(name string, b []byte, offset uint64) error {
	return p.change(name, false, func(old []byte) []byte {
		data := make([]byte, max(uint64(len(old)), offset+uint64(len(b))))
		copy(data, old)
		copy(data[offset:], b)
		return data
	})
}

// Read reads from an offset.
func (p *Pool) Read(name string, b []byte, offset uint64) (n int, err error) {
	err = p.change(name, true, func(old []byte) []byte {
		p.Reads++
		n = copy(b, old[min(offset, uint64(len(old))):])
		return old
	})
	return n, err
}

// Truncate truncates an object.
func (p *Pool) Truncate(name string, size uint64) error {
	return p.change(name, true, func(old []byte) []byte { return old[:size] })
}

// Size returns an object's length.
func (p *Pool) Size(name string) (size uint64, err error) {
	err = p.change(name, true, func(old []byte) []byte {
		size = uint64(len(old))
		return old
	})
	return size, err
}

// Remove removes an object.
func (p *Pool) Remove(name string) error {
	return p.change(name, true, func([]byte) []byte { return nil })
}

// List returns the names of all objects.
func (p *Pool) List() ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.Objects)), nil
}

// Path returns an object's name for messages.
func (p *Pool) Path(name string) string { return "pool/" + name }
