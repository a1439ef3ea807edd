package faults

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
)

// pool is a simulated RADOS pool on a node's disk. An operation is atomic, and durable when it
// answers. If it fails, or the process dies meanwhile, either outcome is possible.
type pool struct{ *disk }

// operate changes an object, which must exist if `be` is set. A nil result removes the object,
// which needs no space.
func (p pool) operate(name string, be bool, change func(old []byte) []byte) error {
	err := p.step()
	var old []byte
	if f := p.names[name]; f != nil {
		old = f.data
	} else if be {
		return errors.Join(p.there(name), err)
	}
	data := change(slices.Clone(old))
	switch {
	case err != nil:
	case data != nil && p.noRoom():
		return fmt.Errorf("write %s: %w", name, syscall.ENOSPC)
	case p.sick:
		p.sick = false
		err = fmt.Errorf("write %s: %w", name, syscall.ESHUTDOWN)
	}
	if err != nil && p.random.IntN(2) == 0 {
		return err
	}
	if data != nil {
		f := newFile(name)
		f.data = data
		p.names[name] = f
	} else {
		delete(p.names, name)
	}
	return err
}

// there returns an error unless an object exists.
func (p pool) there(name string) error {
	if p.names[name] == nil {
		return fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return nil
}

// WriteFull creates or replaces an object.
func (p pool) WriteFull(name string, parts ...[]byte) error {
	return p.operate(name, false, func([]byte) []byte { return append([]byte{}, slices.Concat(parts...)...) })
}

// Write writes at an offset.
func (p pool) Write(name string, b []byte, offset uint64) error {
	return p.operate(name, false, func(old []byte) []byte {
		f := file{data: append([]byte{}, old...)}
		f.write(b, int(offset))
		return f.data
	})
}

// Read reads from an offset.
func (p pool) Read(name string, b []byte, offset uint64) (int, error) {
	if err := p.step(); err != nil {
		return 0, err
	}
	if err := p.there(name); err != nil {
		return 0, err
	}
	data := p.names[name].data
	return copy(b, data[min(offset, uint64(len(data))):]), nil
}

// Truncate truncates an object.
func (p pool) Truncate(name string, size uint64) error {
	return p.operate(name, true, func(old []byte) []byte {
		return append([]byte{}, old[:min(size, uint64(len(old)))]...)
	})
}

// Size returns an object's length.
func (p pool) Size(name string) (uint64, error) {
	if err := p.step(); err != nil {
		return 0, err
	}
	if err := p.there(name); err != nil {
		return 0, err
	}
	return uint64(len(p.names[name].data)), nil
}

// Remove removes an object.
func (p pool) Remove(name string) error {
	return p.operate(name, true, func([]byte) []byte { return nil })
}
