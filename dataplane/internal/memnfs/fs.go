// Package memnfs is an NFS version 3 server that keeps its files in memory: what the tests and
// benchmarks of the proxy and of the replayer talk to. It serves one export, trusts every client and
// knows no owners, times, links or devices.
package memnfs

import (
	"encoding/binary"
	"slices"
	"sync"

	"hotbed/dataplane/internal/nfs3"
)

// MaxFile is the largest size of a file in bytes.
const MaxFile = 1 << 32

// node is a file, or a folder when entries is not nil.
type node struct {
	id      uint64
	data    []byte
	entries map[string]*node
	gone    bool
}

// FS is a tree of files. Its methods may be called at the same time.
type FS struct {
	mutex sync.RWMutex
	nodes map[uint64]*node
	last  uint64
}

// NewFS returns one with an empty root.
func NewFS() *FS {
	fs := &FS{nodes: map[uint64]*node{}}
	fs.add(true)
	return fs
}

const rootID = 1

func (fs *FS) add(folder bool) *node {
	fs.last++
	n := &node{id: fs.last}
	if folder {
		n.entries = map[string]*node{}
	}
	fs.nodes[n.id] = n
	return n
}

func handleOf(id uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte("memnfs\x00\x01"), id)
}

func (fs *FS) find(handle []byte) (*node, nfs3.Status) {
	if len(handle) != 16 || string(handle[:8]) != "memnfs\x00\x01" {
		return nil, nfs3.ErrBadHandle
	}
	n := fs.nodes[binary.BigEndian.Uint64(handle[8:])]
	if n == nil || n.gone {
		return nil, nfs3.ErrStale
	}
	return n, nfs3.OK
}

func (fs *FS) folder(handle []byte) (*node, nfs3.Status) {
	n, status := fs.find(handle)
	if status == nfs3.OK && n.entries == nil {
		status = nfs3.ErrNotDir
	}
	return n, status
}

func (fs *FS) file(handle []byte) (*node, nfs3.Status) {
	n, status := fs.find(handle)
	if status == nfs3.OK && n.entries != nil {
		status = nfs3.ErrIsDir
	}
	return n, status
}

func goodName(name string) nfs3.Status {
	switch {
	case name == "" || name == "." || name == "..":
		return nfs3.ErrInvalid
	case len(name) > nfs3.MaxName:
		return nfs3.ErrNameTooLong
	}
	return nfs3.OK
}

func (fs *FS) create(handle []byte, name string, folder, exclusive bool) (*node, nfs3.Status) {
	parent, status := fs.folder(handle)
	if status == nfs3.OK {
		status = goodName(name)
	}
	if status != nfs3.OK {
		return nil, status
	}
	if n := parent.entries[name]; n != nil {
		if folder || exclusive || n.entries != nil {
			return nil, nfs3.ErrExists
		}
		return n, nfs3.OK
	}
	n := fs.add(folder)
	parent.entries[name] = n
	return n, nfs3.OK
}

func (fs *FS) remove(handle []byte, name string, folder bool) nfs3.Status {
	parent, status := fs.folder(handle)
	if status != nfs3.OK {
		return status
	}
	n := parent.entries[name]
	switch {
	case n == nil:
		return nfs3.ErrNoEntry
	case folder && n.entries == nil:
		return nfs3.ErrNotDir
	case !folder && n.entries != nil:
		return nfs3.ErrIsDir
	case len(n.entries) > 0:
		return nfs3.ErrNotEmpty
	}
	delete(parent.entries, name)
	fs.forget(n)
	return nfs3.OK
}

func (fs *FS) forget(n *node) {
	n.gone = true
	delete(fs.nodes, n.id)
}

func (fs *FS) rename(from []byte, oldName string, to []byte, newName string) nfs3.Status {
	source, status := fs.folder(from)
	if status != nfs3.OK {
		return status
	}
	target, status := fs.folder(to)
	if status == nfs3.OK {
		status = goodName(newName)
	}
	if status != nfs3.OK {
		return status
	}
	n := source.entries[oldName]
	if n == nil {
		return nfs3.ErrNoEntry
	}
	if old := target.entries[newName]; old != nil && old != n {
		if old.entries != nil || n.entries != nil {
			return nfs3.ErrExists
		}
		fs.forget(old)
	}
	delete(source.entries, oldName)
	target.entries[newName] = n
	return nfs3.OK
}

// resize makes a file that long; what is new is zero.
func (n *node) resize(size uint64) nfs3.Status {
	if size > MaxFile {
		return nfs3.ErrTooBig
	}
	have := uint64(len(n.data))
	switch {
	case size < have:
		clear(n.data[size:])
		n.data = n.data[:size]
	case size > have:
		n.data = slices.Grow(n.data, int(size-have))[:size]
	}
	return nfs3.OK
}

func (n *node) write(offset uint64, data []byte) nfs3.Status {
	end := offset + uint64(len(data))
	if end < offset || end > MaxFile {
		return nfs3.ErrTooBig
	}
	if end > uint64(len(n.data)) {
		n.resize(end)
	}
	copy(n.data[offset:], data)
	return nfs3.OK
}

// read is a part of the file, valid as long as the file is locked.
func (n *node) read(offset uint64, count uint32) (data []byte, end bool) {
	size := uint64(len(n.data))
	offset = min(offset, size)
	stop := min(offset+uint64(count), size)
	return n.data[offset:stop], stop == size
}
