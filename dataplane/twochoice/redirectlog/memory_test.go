package redirectlog

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"syscall"
)

var errCrash = errors.New("the machine crashed")

// disk is a folder in memory that can crash at any call, and can be full.
type disk struct {
	names, durable map[string]*inode
	calls          int
	crashAt        int // the first failing call; all later calls fail too; 0: none
	room           int // remaining bytes; negative: unlimited
	syncFails      int // this many Syncs fail with syncError
	syncError      error
}

type inode struct {
	now, durable []byte
}

func newDisk() *disk {
	return &disk{names: map[string]*inode{}, durable: map[string]*inode{}, room: -1}
}

// call counts a call; the crashing call may have a partial effect.
func (d *disk) call() error {
	d.calls++
	if d.crashAt > 0 && d.calls >= d.crashAt {
		return errCrash
	}
	return nil
}

// crash loses data that is not durable: each sector written since may survive or not, and so may
// the file's new length and each name change.
func (d *disk) crash(random *rand.Rand) {
	if random.IntN(2) == 0 {
		d.names = map[string]*inode{}
		for name, node := range d.durable {
			d.names[name] = node
		}
	}
	d.durable = map[string]*inode{}
	for name, node := range d.names {
		d.durable[name] = node
		node.tear(random)
	}
	d.crashAt, d.calls = 0, 0
}

func (n *inode) tear(random *rand.Rand) {
	length := len(n.durable)
	if len(n.now) != length {
		low, high := min(length, len(n.now)), max(length, len(n.now))
		length = [3]int{low, high, low + random.IntN(high-low+1)}[random.IntN(3)]
	}
	out := make([]byte, length)
	copy(out, n.durable)
	all := random.IntN(3)
	for at := 0; at < min(length, len(n.now)); at += sectorSize {
		if all == 0 || all == 1 && random.IntN(2) == 0 {
			copy(out[at:min(at+sectorSize, length)], n.now[at:])
		}
	}
	n.now, n.durable = out, slices.Clone(out)
}

func (d *disk) Open(name string) (File, error) {
	if err := d.call(); err != nil {
		return nil, err
	}
	node, ok := d.names[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return &handle{d, node}, nil
}

func (d *disk) Create(name string) (File, error) {
	if err := d.call(); err != nil {
		return nil, err
	}
	if d.room == 0 {
		return nil, syscall.ENOSPC
	}
	node := &inode{}
	d.names[name] = node
	return &handle{d, node}, nil
}

func (d *disk) Rename(from, to string) error {
	err := d.call()
	if err != nil && d.calls%2 == 0 {
		return err
	}
	node, ok := d.names[from]
	if !ok {
		return fs.ErrNotExist
	}
	delete(d.names, from)
	d.names[to] = node
	return err
}

func (d *disk) Remove(name string) error {
	if err := d.call(); err != nil {
		return err
	}
	if _, ok := d.names[name]; !ok {
		return fs.ErrNotExist
	}
	delete(d.names, name)
	return nil
}

func (d *disk) SyncFolder() error {
	if err := d.call(); err != nil {
		return err
	}
	d.durable = map[string]*inode{}
	for name, node := range d.names {
		d.durable[name] = node
	}
	return nil
}

func (d *disk) Path(name string) string { return "/disk/" + name }

// handle is an open file.
type handle struct {
	d    *disk
	node *inode
}

func (h *handle) ReadAt(p []byte, offset int64) (int, error) {
	if err := h.d.call(); err != nil {
		return 0, err
	}
	if offset >= int64(len(h.node.now)) {
		return 0, io.EOF
	}
	n := copy(p, h.node.now[offset:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (h *handle) WriteAt(p []byte, offset int64) (int, error) {
	err := h.d.call()
	n := len(p)
	grown := max(0, int(offset)+n-len(h.node.now))
	if h.d.room >= 0 {
		if grown > h.d.room {
			n = max(0, n-(grown-h.d.room))
			grown, err = h.d.room, syscall.ENOSPC
			if n == 0 {
				grown = 0
			}
		}
		h.d.room -= grown
	}
	h.node.now = append(h.node.now, make([]byte, grown)...)
	copy(h.node.now[min(int(offset), len(h.node.now)):], p[:n])
	return n, err
}

func (h *handle) Truncate(size int64) error {
	if err := h.d.call(); err != nil {
		return err
	}
	if h.d.room >= 0 {
		h.d.room += max(0, len(h.node.now)-int(size))
	}
	h.node.now = slices.Clone(h.node.now[:size])
	return nil
}

func (h *handle) Size() (int64, error) { return int64(len(h.node.now)), h.d.call() }

func (h *handle) Sync() error {
	if err := h.d.call(); err != nil {
		return err
	}
	if h.d.syncFails > 0 { // all of it may be durable nevertheless
		h.d.syncFails--
		h.node.durable = slices.Clone(h.node.now)
		return h.d.syncError
	}
	h.node.durable = slices.Clone(h.node.now)
	return nil
}

func (h *handle) Close() error { return nil }
