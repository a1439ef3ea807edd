package faults

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"hotbed/dataplane/sim"
	"hotbed/dataplane/twochoice/filestore"
	"hotbed/dataplane/twochoice/protocol"
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

// damage is a medium fault in one synced sector.
type damage uint8

const (
	flip      damage = iota // some bits flip
	zero                    // the sector reads as zeros
	drop                    // the last sync acknowledged a write but did not do it
	misdirect               // drop, and the data went to another place
	wear                    // the sector cannot be read
	damages
)

// A medium writes a sector wholly or not at all. Sectors of files other than the log are small,
// because the writes here are small.
const (
	logSector = 512
	logBlock  = 4096 // the log has two consecutive copies of each block
	sector    = 16
)

func sectorOf(name string) int {
	if strings.HasPrefix(name, filestore.LogName) {
		return logSector
	}
	return sector
}

// place is the position of a sector: its file and first byte.
type place struct {
	name string
	at   int
}

// bytes returns the bytes of a sector.
func (d *disk) bytes(p place) []byte {
	f := d.names[p.name]
	return f.data[p.at:min(p.at+f.sector, len(f.data))]
}

// hit damages a synced sector of the log, a base or a fragment if `may` allows it. It returns the
// sectors that changed. `may` protects data that exists only once.
func (d *disk) hit(kind damage, may func(place) bool) []place {
	p, ok := d.somewhere()
	from, written := d.lastWritten()
	touched := []place{p}
	switch {
	case kind == drop && written != nil:
		touched = []place{from}
	case kind == misdirect && written != nil && ok:
		touched = []place{from, p}
	case kind == drop || kind == misdirect || !ok:
		return nil
	}
	before := make([][]byte, len(touched))
	for i, p := range touched {
		if !d.synced(p) || !may(p) {
			return nil
		}
		d.names[p.name].hurt[p.at] = true // protects the second copy from damage
		before[i] = bytes.Clone(d.bytes(p))
	}
	switch data := d.bytes(touched[len(touched)-1]); kind {
	case flip:
		for range 1 + d.random.IntN(3) {
			data[d.random.IntN(int64(len(data)))] ^= 1 << d.random.IntN(8)
		}
	case zero:
		clear(data)
	case misdirect:
		copy(data, d.bytes(from))
		d.undoWrite(from, written)
	case drop:
		d.undoWrite(from, written)
	case wear:
		d.names[p.name].worn[p.at] = true
		return touched
	}
	var out []place
	for i, p := range touched {
		if !bytes.Equal(d.bytes(p), before[i]) {
			out = append(out, p)
		}
	}
	return out
}

// somewhere returns a random sector; log, bases and fragments are equally likely.
func (d *disk) somewhere() (place, bool) {
	names, _ := d.List()
	prefix := chance(d.random, filestore.LogName, "b.", "f.")
	names = slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, prefix) || strings.HasSuffix(name, ".new") || len(d.names[name].data) == 0
	})
	if len(names) == 0 {
		return place{}, false
	}
	name := chance(d.random, names...)
	f := d.names[name]
	at := int(d.random.IntN(int64(len(f.data))))
	return place{name, at - at%f.sector}, true
}

// lastWritten returns a sector that a file's last sync made durable, and its write, or nil.
func (d *disk) lastWritten() (place, *fileChange) {
	p, ok := d.somewhere()
	if !ok || len(d.names[p.name].last) == 0 {
		return p, nil
	}
	f := d.names[p.name]
	c := &f.last[d.random.IntN(int64(len(f.last)))]
	if len(c.new) == 0 || c.offset+len(c.new) > len(f.data) {
		return p, nil
	}
	at := c.offset + int(d.random.IntN(int64(len(c.new))))
	return place{p.name, at - at%f.sector}, c
}

// undoWrite reverts a write in a sector.
func (d *disk) undoWrite(p place, c *fileChange) {
	data := d.bytes(p)
	for i := range data {
		if at := p.at + i - c.offset; at >= 0 && at < len(c.new) {
			data[i] = 0
			if at < len(c.old) {
				data[i] = c.old[at]
			}
		}
	}
}

// synced reports whether a sector has no unsynced change.
func (d *disk) synced(p place) bool {
	return !slices.ContainsFunc(d.names[p.name].unsynced, func(c fileChange) bool {
		return c.offset < p.at+sectorOf(p.name) && (c.new == nil || p.at < c.offset+len(c.new))
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

// damage damages a node's disk, but never both copies of a log sector or a fragment.
func (w *world) damage(n *node) {
	kind := damage(w.faults.IntN(int64(damages)))
	may := func(p place) bool {
		if sectorOf(p.name) == logSector {
			return !n.disk.names[p.name].hurt[p.at^logBlock]
		}
		on, spoilt := w.spoilt[p.name]
		return w.plan.copies == 1 || !spoilt || on == n.id
	}
	for _, p := range n.disk.hit(kind, may) {
		w.log("node %d: the sector of %s at %d is damaged (%d)", n.id, p.name, p.at, kind)
		w.spoil(n, p.name)
		w.result.damaged(kind, p.name)
	}
}

// lose deletes a fragment if its other copy is intact.
func (w *world) lose(n *node) {
	p, ok := n.disk.somewhere()
	if on, spoilt := w.spoilt[p.name]; ok && strings.HasPrefix(p.name, "f.") && (!spoilt || on == n.id) {
		w.log("node %d: %s is lost", n.id, p.name)
		delete(n.disk.names, p.name)
		w.spoil(n, p.name)
		w.result.Missing++
	}
}

// spoil records that a file on a node, and so its object's bytes, are damaged.
func (w *world) spoil(n *node, name string) {
	var id protocol.WriteID
	if _, err := fmt.Sscanf(name, "f.%x.%x", &id.Client, &id.Seq); err == nil {
		w.spoilt[name] = n.id
		if write := w.model.byName[id]; write != nil {
			w.damaged[write.object.name] = true
		}
	}
	for _, object := range w.names() {
		if strings.HasPrefix(name, filestore.BaseName(object)) {
			w.damaged[object] = true
		}
	}
}

// trust recomputes a base's sums from its contents, for a protocol that is broken on purpose.
func (d *disk) trust(op protocol.DiskOp) {
	for i, s := range op.Sums {
		data := make([]byte, s.To-s.From)
		if f := d.names[filestore.BaseName(op.Object)]; f != nil && s.From < uint64(len(f.data)) {
			copy(data, f.data[s.From:])
		}
		op.Sums[i] = protocol.SumsOf(s.From, data)[0]
	}
}

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

// Synced data survives a power loss completely, unsynced data at most in part.
func TestALossOfPowerTakesNothingThatWasSynced(t *testing.T) {
	later := bytes.Repeat([]byte("later! "), 12)
	lost, kept, torn, holes := 0, 0, 0, 0
	for seed := range uint64(300) {
		d := newDisk(sim.NewStream(seed, "disk"))
		file, err := d.Create("log")
		check(t, err)
		_, err = file.WriteAt([]byte("synced"), 0)
		check(t, err)
		check(t, file.Sync())
		check(t, d.SyncFolder())
		_, err = file.WriteAt(later, 6)
		check(t, err)
		other, err := d.Create("new")
		check(t, err)
		_, err = other.WriteAt([]byte("n"), 0)
		check(t, err)
		check(t, other.Sync())
		check(t, d.Rename("new", "renamed"))
		d.losePower()
		data := d.names["log"].data
		switch {
		case !bytes.HasPrefix(data, []byte("synced")):
			t.Fatalf("seed %d: %q", seed, data)
		case len(data) == 6:
			lost++
		case bytes.Equal(data[6:], later):
			kept++
		case bytes.HasPrefix(later, data[6:]):
			torn++
		default:
			holes++
			for i, b := range data[6:] {
				if b != 0 && b != later[i] {
					t.Fatalf("seed %d: %q", seed, data)
				}
			}
		}
		if (d.names["new"] != nil) && (d.names["renamed"] != nil) {
			t.Fatalf("seed %d: a file has both names", seed)
		}
	}
	if lost < 50 || kept < 50 || torn < 5 || holes < 30 {
		t.Errorf("%d lost, %d kept, %d torn, %d with holes", lost, kept, torn, holes)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
