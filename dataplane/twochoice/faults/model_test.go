package faults

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"hotbed/dataplane/twochoice/protocol"
)

// model is the promise of docs/twochoice.md: each object is a row of bytes with ordered
// writes. The model checks every stamp. A stamp claims a place in the order; it must agree with the
// times at which operations began and ended, and with every byte read.
type model struct {
	objects map[string]*modelObject
	byName  map[protocol.WriteID]*write
	found   error // first violation
	reads   int   // number compared
	acked   int
}

type modelObject struct {
	name   string
	order  []*write // by stamp
	latest uint64   // greatest stamp of an ended operation
}

// write is a write as its client requested it.
type write struct {
	object   *modelObject
	from     uint64
	data     []byte
	floor    uint64 // maximum stamp of the operations that ended before the write began
	stamp    uint64 // place in the order, 0 if none yet
	acked    bool
	rejected bool // its client got an error
}

func (w *write) to() uint64 { return w.from + uint64(len(w.data)) }

func newModel() *model {
	return &model{objects: map[string]*modelObject{}, byName: map[protocol.WriteID]*write{}}
}

func (m *model) object(name string) *modelObject {
	o := m.objects[name]
	if o == nil {
		o = &modelObject{name: name}
		m.objects[name] = o
	}
	return o
}

func (m *model) violated(format string, args ...any) {
	if m.found == nil {
		m.found = fmt.Errorf(format, args...)
	}
}

// begin records the start of a write.
func (m *model) begin(object string, from uint64, data []byte) *write {
	o := m.object(object)
	return &write{object: o, from: from, data: data, floor: o.latest}
}

// named records the name of a write in progress.
func (m *model) named(w *write, id protocol.WriteID) { m.byName[id] = w }

// ordered gives the writes of durable log records their places.
func (m *model) ordered(records []protocol.Record) {
	for _, r := range records {
		if !r.Writes() {
			continue
		}
		c := r.Change
		w := m.byName[r.Note.Write]
		if w == nil || w.object.name != string(c.Object) || w.from != c.Range.Start || w.to() != c.Range.End {
			m.violated("%q has at %d a write %v of %v that nobody made", c.Object, c.Receipt, r.Note.Write, c.Range)
			continue
		}
		m.place(w, uint64(c.Receipt))
	}
}

// place assigns a write its place in the order.
func (m *model) place(w *write, stamp uint64) {
	o := w.object
	if w.stamp == stamp {
		return
	}
	if w.stamp != 0 {
		m.violated("%q: the write of %d to %d is in the order at %d and again at %d", o.name, w.from, w.to(), w.stamp,
			stamp)
		return
	}
	if w.rejected {
		m.violated("%q: the write of %d to %d was done at %d after its client heard that it was not", o.name,
			w.from, w.to(), stamp)
	}
	if stamp <= w.floor {
		m.violated("%q: the write of %d to %d is in the order at %d, before %d that had ended when it began", o.name,
			w.from, w.to(), stamp, w.floor)
	}
	i, taken := slices.BinarySearchFunc(o.order, stamp, func(w *write, s uint64) int {
		return int(int64(w.stamp) - int64(s))
	})
	if taken {
		m.violated("%q: two writes are in the order at %d", o.name, stamp)
		return
	}
	w.stamp = stamp
	o.order = slices.Insert(o.order, i, w)
}

// ended records the end of a write.
func (m *model) ended(w *write, f protocol.Finished) {
	var refused *protocol.Error
	if errors.As(f.Err, &refused) && refused.Code == protocol.Refused {
		m.violated("%q: the write of %d to %d was refused though nothing is wrong with it: %v", w.object.name, w.from,
			w.to(), f.Err)
	}
	switch {
	case f.Err == nil:
		if f.Stamp == 0 {
			m.violated("%q: the write of %d to %d was acknowledged without a place in the order", w.object.name, w.from,
				w.to())
		}
		w.acked = true
		m.acked++
		m.place(w, f.Stamp)
		w.object.latest = max(w.object.latest, f.Stamp)
	case f.Decided:
		w.rejected = true
		if w.stamp != 0 {
			m.violated("%q: the write of %d to %d is in the order at %d, but its client heard that it is not "+
				"done: %v", w.object.name, w.from, w.to(), w.stamp, f.Err)
		}
	}
}

// read checks a read that began when floor was the greatest ended stamp.
func (m *model) read(object string, from, to, floor uint64, f protocol.Finished) {
	o := m.object(object)
	if f.Stamp < floor {
		m.violated("%q: a read of %d to %d is as of %d, before %d that had ended when it began", object, from, to,
			f.Stamp, floor)
	}
	if size := o.size(f.Stamp); to > size {
		m.violated("%q: a read of %d to %d as of %d has bytes beyond the object's %d", object, from, to, f.Stamp, size)
		return
	}
	o.latest = max(o.latest, f.Stamp)
	m.reads++
	want := o.content(from, to, f.Stamp)
	if bytes.Equal(want, f.Data) {
		return
	}
	at := 0
	for want[at] == f.Data[at] {
		at++
	}
	m.violated("%q: a read of %d to %d as of %d has %d at byte %d, and the writes up to there leave %d", object, from,
		to, f.Stamp, f.Data[at], from+uint64(at), want[at])
}

// beyond checks a read that was refused because the object ends earlier.
func (m *model) beyond(object string, to, floor uint64, stamp uint64) {
	o := m.object(object)
	if stamp < floor {
		m.violated("%q: a read to %d was refused as of %d, before %d that had ended when it began", object, to, stamp,
			floor)
	}
	if o.size(stamp) >= to {
		m.violated("%q: a read to %d as of %d was refused, and the object has %d bytes there", object, to, stamp,
			o.size(stamp))
	}
}

// content returns the result of all writes up to a stamp.
func (o *modelObject) content(from, to, stamp uint64) []byte {
	out := make([]byte, to-from)
	for _, w := range o.order {
		if w.stamp > stamp {
			break
		}
		if start, end := max(w.from, from), min(w.to(), to); start < end {
			copy(out[start-from:end-from], w.data[start-w.from:])
		}
	}
	return out
}

func (o *modelObject) size(stamp uint64) uint64 {
	var out uint64
	for _, w := range o.order {
		if w.stamp <= stamp {
			out = max(out, w.to())
		}
	}
	return out
}
