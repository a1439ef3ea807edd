package faults

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"syscall"

	"hotbed/dataplane/sim"
	"hotbed/dataplane/twochoice/redirectlog"
)

// disk is a node's folder as its processes see it, with the parts that a power loss would take.
type disk struct {
	random *sim.Stream
	names  map[string]*file
	// renamed holds the name changes since the last SyncFolder, oldest first, with the old files.
	renamed []nameChange
	full    bool // most writes and a few syncs find no space
	sick    bool // the next sync fails
	oneCopy bool // second copies of the log's blocks are not written
	task    *task
}

type nameChange struct {
	name   string
	before *file // nil: no file
	second bool  // half of a rename: kept or lost with the change before
}

// file is a file's bytes, with the information to revert unsynced changes.
type file struct {
	sector   int
	data     []byte
	unsynced []fileChange
	last     []fileChange // made durable by the last sync
	hurt     map[int]bool // sectors, by first byte, that may differ from their synced state
	worn     map[int]bool // unreadable sectors
}

func newFile(name string) *file {
	return &file{sector: sectorOf(name), hurt: map[int]bool{}, worn: map[int]bool{}}
}

type fileChange struct {
	offset int
	old    []byte // the previous bytes
	size   int    // file size before
	new    []byte // nil: the file was cut to offset
}

var errCrash = errors.New("the process died")

func newDisk(random *sim.Stream) *disk {
	return &disk{random: random, names: map[string]*file{}}
}

// step precedes each call. The calling task lets other tasks run, and fails if its process dies
// meanwhile.
func (d *disk) step() error {
	if d.task == nil {
		return nil
	}
	return d.task.step()
}

func (d *disk) change(name string, after *file) {
	d.renamed = append(d.renamed, nameChange{name: name, before: d.names[name]})
	if after == nil {
		delete(d.names, name)
	} else {
		d.names[name] = after
	}
}

// Open opens an existing file.
func (d *disk) Open(name string) (redirectlog.File, error) {
	if err := d.step(); err != nil {
		return nil, err
	}
	f := d.names[name]
	if f == nil {
		return nil, fmt.Errorf("open %s: %w", name, fs.ErrNotExist)
	}
	return &handle{d, f}, nil
}

// Create creates an empty file, or truncates an existing one.
func (d *disk) Create(name string) (redirectlog.File, error) {
	h, err := d.ensure(name)
	if err != nil {
		return nil, err
	}
	h.f.cut(0)
	return h, nil
}

// Ensure opens a file, and creates it if it does not exist.
func (d *disk) Ensure(name string) (redirectlog.File, error) { return d.ensure(name) }

func (d *disk) ensure(name string) (*handle, error) {
	if err := d.step(); err != nil {
		return nil, err
	}
	f := d.names[name]
	if f == nil {
		if d.full {
			return nil, fmt.Errorf("create %s: %w", name, syscall.ENOSPC)
		}
		f = newFile(name)
		d.change(name, f)
	}
	return &handle{d, f}, nil
}

// Rename renames a file.
func (d *disk) Rename(from, to string) error {
	if err := d.step(); err != nil {
		return err
	}
	f := d.names[from]
	if f == nil {
		return fmt.Errorf("rename %s: %w", from, fs.ErrNotExist)
	}
	d.change(from, nil)
	d.change(to, f)
	d.renamed[len(d.renamed)-1].second = true
	return nil
}

// Remove removes a file.
func (d *disk) Remove(name string) error {
	if err := d.step(); err != nil {
		return err
	}
	if d.names[name] == nil {
		return fmt.Errorf("remove %s: %w", name, fs.ErrNotExist)
	}
	d.change(name, nil)
	return nil
}

// SyncFolder makes names durable.
func (d *disk) SyncFolder() error {
	if err := d.step(); err != nil {
		return err
	}
	if d.sick {
		d.sick = false
		return fmt.Errorf("sync: %w", syscall.EIO)
	}
	if len(d.renamed) > 0 && d.full && d.random.IntN(8) == 0 {
		return fmt.Errorf("sync: %w", syscall.ENOSPC)
	}
	d.renamed = d.renamed[:0]
	return nil
}

// Path returns a file's name for messages.
func (d *disk) Path(name string) string { return name }

// List returns the names of all files.
func (d *disk) List() ([]string, error) {
	out := make([]string, 0, len(d.names))
	for name := range d.names {
		out = append(out, name)
	}
	slices.Sort(out)
	return out, nil
}

// noRoom reports whether this write finds no space; a full disk frees some space at times.
func (d *disk) noRoom() bool { return d.full && d.random.IntN(4) > 0 }

// losePower reverts unsynced changes, or keeps any part of them. Names revert in order, as in a
// journaling file system. Bytes revert in any order, and single writes by sectors.
func (d *disk) losePower() {
	kept := int(d.random.IntN(int64(len(d.renamed) + 1)))
	if kept < len(d.renamed) && d.renamed[kept].second {
		kept--
	}
	for i := len(d.renamed) - 1; i >= kept; i-- {
		c := d.renamed[i]
		if c.before == nil {
			delete(d.names, c.name)
		} else {
			d.names[c.name] = c.before
		}
	}
	d.renamed = d.renamed[:0]
	names, _ := d.List()
	for _, name := range names {
		d.names[name].losePower(d.random)
	}
}

func (f *file) losePower(random *sim.Stream) {
	changes := f.unsynced
	f.unsynced = nil
	for i := len(changes) - 1; i >= 0; i-- {
		f.undo(changes[i])
	}
	for _, c := range changes {
		switch random.IntN(3) {
		case 0: // lost
		case 1:
			f.redo(c)
		case 2:
			for at := 0; at < len(c.new); {
				next := min(at+f.sector-(c.offset+at)%f.sector, len(c.new))
				if random.IntN(4) > 0 {
					f.write(c.new[at:next], c.offset+at)
				}
				at = next
			}
		}
	}
}

func (f *file) undo(c fileChange) {
	if c.new != nil {
		copy(f.data[c.offset:], c.old)
	} else {
		f.data = append(f.data[:c.offset], c.old...)
	}
	f.data = f.data[:c.size]
}

// redo repeats a change.
func (f *file) redo(c fileChange) {
	if c.new == nil {
		f.data = f.data[:min(c.offset, len(f.data))]
		return
	}
	f.write(c.new, c.offset)
}

// cut truncates the file to a size not above the current size.
func (f *file) cut(size int) {
	f.unsynced = append(f.unsynced, fileChange{offset: size, size: len(f.data), old: slices.Clone(f.data[size:])})
	f.data = f.data[:size]
}

func (f *file) write(b []byte, offset int) {
	for len(f.data) < offset {
		f.data = append(f.data, 0)
	}
	n := copy(f.data[offset:], b)
	f.data = append(f.data, b[n:]...)
}

// handle is an open file.
type handle struct {
	d *disk
	f *file
}

func (h *handle) ReadAt(b []byte, offset int64) (int, error) {
	if err := h.d.step(); err != nil {
		return 0, err
	}
	if offset >= int64(len(h.f.data)) {
		return 0, io.EOF
	}
	for at := range h.f.worn {
		if int(offset) < at+h.f.sector && at < int(offset)+len(b) {
			return 0, fmt.Errorf("read: %w", syscall.EIO)
		}
	}
	n := copy(b, h.f.data[offset:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (h *handle) WriteAt(b []byte, offset int64) (int, error) {
	n := len(b)
	err := h.d.step()
	switch {
	case err != nil:
		n = h.some(n + 1) // before the process died
	case h.f.sector == logSector && int(offset)+n <= len(h.f.data): // space is allocated
	case h.d.noRoom():
		n = h.some(n) // as much as fits
		err = fmt.Errorf("write: %w", syscall.ENOSPC)
	}
	if h.d.oneCopy && h.f.sector == logSector {
		b = slices.Clone(b)
		for i := range b {
			if (int(offset)+i)/logBlock%2 == 1 {
				b[i] = 0
			}
		}
	}
	at := int(offset)
	c := fileChange{offset: at, size: len(h.f.data), new: slices.Clone(b[:n])}
	if at < len(h.f.data) {
		c.old = slices.Clone(h.f.data[at:min(at+n, len(h.f.data))])
	}
	if n > 0 {
		h.f.unsynced = append(h.f.unsynced, c)
		h.f.write(b[:n], at)
	}
	return n, err
}

// some returns a random length below n bytes; log writes tear only between sectors.
func (h *handle) some(n int) int {
	n = int(h.d.random.IntN(int64(n)))
	if h.f.sector == logSector {
		n -= n % logSector
	}
	return n
}

func (h *handle) Truncate(size int64) error {
	if err := h.d.step(); err != nil {
		return err
	}
	if int(size) > len(h.f.data) {
		return errors.New("the simulated disk cuts files only")
	}
	h.f.cut(int(size))
	return nil
}

func (h *handle) Size() (int64, error) { return int64(len(h.f.data)), h.d.step() }

func (h *handle) Sync() error {
	if err := h.d.step(); err != nil {
		return err
	}
	if h.d.sick {
		h.d.sick = false
		return fmt.Errorf("sync: %w", syscall.EIO)
	}
	if len(h.f.unsynced) > 0 && h.d.full && h.d.random.IntN(8) == 0 { // promised space is missing
		return fmt.Errorf("sync: %w", syscall.ENOSPC)
	}
	h.f.heal()
	h.f.last, h.f.unsynced = h.f.unsynced, nil
	return nil
}

func (h *handle) Close() error { return nil }
