// Package simdisk simulates a node's disk for tests: a folder of files with a power switch, that can be
// full, fail syncs, tear writes and damage sectors, and a RADOS pool on it. All randomness comes from
// a stream.
package simdisk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"syscall"

	"hotbed/dataplane/sim"
	"hotbed/dataplane/twochoice/redirectlog"
)

// Disk is a node's folder as its processes see it, with the parts that a power loss would take.
type Disk struct {
	Random  *sim.Stream
	Full    bool // most writes and a few syncs find no space
	Sick    bool // the next sync fails
	OneCopy bool // second copies of the log's blocks are not written
	// Step, if set, precedes each call, which fails with its error: the process died.
	Step func() error

	names map[string]*file
	// renamed holds the name changes since the last SyncFolder, oldest first, with the old files.
	renamed []nameChange
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
	return &file{sector: SectorOf(name), hurt: map[int]bool{}, worn: map[int]bool{}}
}

type fileChange struct {
	offset int
	old    []byte // the previous bytes
	size   int    // file size before
	new    []byte // nil: the file was cut to offset
}

// ErrCrash means that the process died.
var ErrCrash = errors.New("the process died")

// New returns an empty disk.
func New(random *sim.Stream) *Disk { return &Disk{Random: random, names: map[string]*file{}} }

func (d *Disk) step() error {
	if d.Step == nil {
		return nil
	}
	return d.Step()
}

// Put replaces a file's synced content.
func (d *Disk) Put(name string, content []byte) {
	d.names[name] = newFile(name)
	d.names[name].data = slices.Clone(content)
}

// Bytes returns a file's content, nil if there is no file.
func (d *Disk) Bytes(name string) []byte {
	if f := d.names[name]; f != nil {
		return f.data
	}
	return nil
}

// Lose deletes a file at once.
func (d *Disk) Lose(name string) { delete(d.names, name) }

func (d *Disk) change(name string, after *file) {
	d.renamed = append(d.renamed, nameChange{name: name, before: d.names[name]})
	if after == nil {
		delete(d.names, name)
	} else {
		d.names[name] = after
	}
}

// Open opens an existing file.
func (d *Disk) Open(name string) (redirectlog.File, error) {
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
func (d *Disk) Create(name string) (redirectlog.File, error) {
	h, err := d.ensure(name)
	if err != nil {
		return nil, err
	}
	h.f.cut(0)
	return h, nil
}

// Ensure opens a file, and creates it if it does not exist.
func (d *Disk) Ensure(name string) (redirectlog.File, error) { return d.ensure(name) }

func (d *Disk) ensure(name string) (*handle, error) {
	if err := d.step(); err != nil {
		return nil, err
	}
	f := d.names[name]
	if f == nil {
		if d.Full {
			return nil, fmt.Errorf("create %s: %w", name, syscall.ENOSPC)
		}
		f = newFile(name)
		d.change(name, f)
	}
	return &handle{d, f}, nil
}

// Rename renames a file.
func (d *Disk) Rename(from, to string) error {
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
func (d *Disk) Remove(name string) error {
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
func (d *Disk) SyncFolder() error {
	if err := d.step(); err != nil {
		return err
	}
	if d.Sick {
		d.Sick = false
		return fmt.Errorf("sync: %w", syscall.EIO)
	}
	if len(d.renamed) > 0 && d.Full && d.Random.IntN(8) == 0 {
		return fmt.Errorf("sync: %w", syscall.ENOSPC)
	}
	d.renamed = d.renamed[:0]
	return nil
}

// Path returns a file's name for messages.
func (d *Disk) Path(name string) string { return name }

// List returns the names of all files.
func (d *Disk) List() ([]string, error) {
	return slices.Sorted(maps.Keys(d.names)), nil
}

// noRoom reports whether this write finds no space; a full disk frees some space at times.
func (d *Disk) noRoom() bool { return d.Full && d.Random.IntN(4) > 0 }

// LosePower reverts unsynced changes, or keeps any part of them. Names revert in order, as in a
// journaling file system. Bytes revert in any order, and single writes by sectors.
func (d *Disk) LosePower() {
	kept := int(d.Random.IntN(int64(len(d.renamed) + 1)))
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
		d.names[name].losePower(d.Random)
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
	d *Disk
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
	case h.f.sector == LogSector && int(offset)+n <= len(h.f.data): // space is allocated
	case h.d.noRoom():
		n = h.some(n) // as much as fits
		err = fmt.Errorf("write: %w", syscall.ENOSPC)
	}
	if h.d.OneCopy && h.f.sector == LogSector {
		b = slices.Clone(b)
		for i := range b {
			if (int(offset)+i)/LogBlock%2 == 1 {
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
	n = int(h.d.Random.IntN(int64(n)))
	if h.f.sector == LogSector {
		n -= n % LogSector
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
	if h.d.Sick {
		h.d.Sick = false
		return fmt.Errorf("sync: %w", syscall.EIO)
	}
	if len(h.f.unsynced) > 0 && h.d.Full && h.d.Random.IntN(8) == 0 { // promised space is missing
		return fmt.Errorf("sync: %w", syscall.ENOSPC)
	}
	h.f.heal()
	h.f.last, h.f.unsynced = h.f.unsynced, nil
	return nil
}

func (h *handle) Close() error { return nil }

// Damage is a medium fault in one synced sector.
type Damage uint8

// The damages.
const (
	Flip      Damage = iota // some bits flip
	Zero                    // the sector reads as zeros
	Drop                    // the last sync acknowledged a write but did not do it
	Misdirect               // Drop, and the data went to another Place
	Wear                    // the sector cannot be read
	Damages
)

// A medium writes a sector wholly or not at all. Sectors of files other than the log are small,
// because the writes here are small.
const (
	LogSector = 512
	LogBlock  = 4096 // the log has two consecutive copies of each block
	Sector    = 16
)

// SectorOf returns the size of a file's sectors.
func SectorOf(name string) int {
	if strings.HasPrefix(name, logName) {
		return LogSector
	}
	return Sector
}

// logName is the name of an agent's redirect log.
const logName = "redirect.log"

// Place is the position of a sector: its file and first byte.
type Place struct {
	Name string
	At   int
}

// bytes returns the bytes of a sector.
func (d *Disk) bytes(p Place) []byte {
	f := d.names[p.Name]
	return f.data[p.At:min(p.At+f.sector, len(f.data))]
}

// Hit damages a synced sector of the log, a base or a fragment if `may` allows it. It returns the
// sectors that changed. `may` protects data that exists only once.
func (d *Disk) Hit(kind Damage, may func(Place) bool) []Place {
	p, ok := d.Somewhere()
	from, written := d.lastWritten()
	touched := []Place{p}
	switch {
	case kind == Drop && written != nil:
		touched = []Place{from}
	case kind == Misdirect && written != nil && ok:
		touched = []Place{from, p}
	case kind == Drop || kind == Misdirect || !ok:
		return nil
	}
	before := make([][]byte, len(touched))
	for i, p := range touched {
		if !d.synced(p) || !may(p) {
			return nil
		}
		d.names[p.Name].hurt[p.At] = true // protects the second copy from damage
		before[i] = bytes.Clone(d.bytes(p))
	}
	switch data := d.bytes(touched[len(touched)-1]); kind {
	case Flip:
		for range 1 + d.Random.IntN(3) {
			data[d.Random.IntN(int64(len(data)))] ^= 1 << d.Random.IntN(8)
		}
	case Zero:
		clear(data)
	case Misdirect:
		copy(data, d.bytes(from))
		d.undoWrite(from, written)
	case Drop:
		d.undoWrite(from, written)
	case Wear:
		d.names[p.Name].worn[p.At] = true
		return touched
	}
	var out []Place
	for i, p := range touched {
		if !bytes.Equal(d.bytes(p), before[i]) {
			out = append(out, p)
		}
	}
	return out
}

// Somewhere returns a random sector; log, bases and fragments are equally likely.
func (d *Disk) Somewhere() (Place, bool) {
	names, _ := d.List()
	prefix := []string{logName, "b.", "f."}[d.Random.IntN(3)]
	names = slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, prefix) || strings.HasSuffix(name, ".new") || len(d.names[name].data) == 0
	})
	if len(names) == 0 {
		return Place{}, false
	}
	name := names[d.Random.IntN(int64(len(names)))]
	f := d.names[name]
	at := int(d.Random.IntN(int64(len(f.data))))
	return Place{name, at - at%f.sector}, true
}

// lastWritten returns a sector that a file's last sync made durable, and its write, or nil.
func (d *Disk) lastWritten() (Place, *fileChange) {
	p, ok := d.Somewhere()
	if !ok || len(d.names[p.Name].last) == 0 {
		return p, nil
	}
	f := d.names[p.Name]
	c := &f.last[d.Random.IntN(int64(len(f.last)))]
	if len(c.new) == 0 || c.offset+len(c.new) > len(f.data) {
		return p, nil
	}
	at := c.offset + int(d.Random.IntN(int64(len(c.new))))
	return Place{p.Name, at - at%f.sector}, c
}

// undoWrite reverts a write in a sector.
func (d *Disk) undoWrite(p Place, c *fileChange) {
	data := d.bytes(p)
	for i := range data {
		if at := p.At + i - c.offset; at >= 0 && at < len(c.new) {
			data[i] = 0
			if at < len(c.old) {
				data[i] = c.old[at]
			}
		}
	}
}

// synced reports whether a sector has no unsynced change.
func (d *Disk) synced(p Place) bool {
	return !slices.ContainsFunc(d.names[p.Name].unsynced, func(c fileChange) bool {
		return c.offset < p.At+SectorOf(p.Name) && (c.new == nil || p.At < c.offset+len(c.new))
	})
}

// heal forgets the damage of sectors that are being synced again.
func (f *file) heal() {
	for _, damaged := range []map[int]bool{f.hurt, f.worn} {
		for at := range damaged {
			if slices.ContainsFunc(f.unsynced, func(c fileChange) bool {
				return c.offset <= at && at+f.sector <= c.offset+len(c.new)
			}) {
				delete(damaged, at)
			}
		}
	}
}

// Hurt reports whether a sector may differ from its synced state.
func (d *Disk) Hurt(p Place) bool { return d.names[p.Name].hurt[p.At] }

// Pool is a simulated RADOS pool on a node's disk. An operation is atomic, and durable when it
// answers. If it fails, or the process dies meanwhile, either outcome is possible.
type Pool struct{ *Disk }

// operate changes an object, which must exist if `be` is set. A nil result removes the object,
// which needs no space.
func (p Pool) operate(name string, be bool, change func(old []byte) []byte) error {
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
	case p.Sick:
		p.Sick = false
		err = fmt.Errorf("write %s: %w", name, syscall.ESHUTDOWN)
	}
	if err != nil && p.Random.IntN(2) == 0 {
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
func (p Pool) there(name string) error {
	if p.names[name] == nil {
		return fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return nil
}

// WriteFull creates or replaces an object.
func (p Pool) WriteFull(name string, parts ...[]byte) error {
	return p.operate(name, false, func([]byte) []byte { return append([]byte{}, slices.Concat(parts...)...) })
}

// Write writes at an offset.
func (p Pool) Write(name string, b []byte, offset uint64) error {
	return p.operate(name, false, func(old []byte) []byte {
		f := file{data: append([]byte{}, old...)}
		f.write(b, int(offset))
		return f.data
	})
}

// Read reads from an offset.
func (p Pool) Read(name string, b []byte, offset uint64) (int, error) {
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
func (p Pool) Truncate(name string, size uint64) error {
	return p.operate(name, true, func(old []byte) []byte {
		return append([]byte{}, old[:min(size, uint64(len(old)))]...)
	})
}

// Size returns an object's length.
func (p Pool) Size(name string) (uint64, error) {
	if err := p.step(); err != nil {
		return 0, err
	}
	if err := p.there(name); err != nil {
		return 0, err
	}
	return uint64(len(p.names[name].data)), nil
}

// Remove removes an object.
func (p Pool) Remove(name string) error {
	return p.operate(name, true, func([]byte) []byte { return nil })
}
