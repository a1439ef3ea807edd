package faults

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"hotbed/dataplane/twochoice/filestore"
	"hotbed/dataplane/twochoice/protocol"
)

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
