package twochoice

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Object is the name of an object.
type Object string

// Range is a range of bytes, from Start up to but not including End.
type Range struct{ Start, End uint64 }

// Len returns the number of bytes in the range.
func (r Range) Len() uint64 { return r.End - r.Start }

// Overlaps reports whether two ranges have a byte in common.
func (r Range) Overlaps(o Range) bool { return max(r.Start, o.Start) < min(r.End, o.End) }

// Receipt numbers the records of a table from 1 up: the order of its log. 0 precedes all.
type Receipt uint64

// Location is the place of bytes: a server and a fragment on it. A fragment holds one write and is
// never rewritten. An unfinished write therefore cannot harm a finished one, and a fragment that no
// entry names can be removed. The fragment at home is 0.
type Location struct {
	Server   Server
	Fragment uint64
}

// Entry is one redirected write: bytes Range of Object are at Location. Byte Range.Start is at
// offset 0 of the fragment.
type Entry struct {
	Object   Object
	Range    Range
	Location Location
	Receipt  Receipt
	Time     time.Duration // time of receipt
}

// Piece is a part of a queried range. At home the offset is the offset in the object.
type Piece struct {
	Range    Range
	Location Location
	Offset   uint64  // of Range.Start in the fragment, or in the object at home
	Receipt  Receipt // of the entry, 0 at home
}

// Kind is the kind of a record.
type Kind uint8

// The kinds of records.
const (
	// Redirected: the range was written to Location (a create of section V.B).
	Redirected Kind = 1
	// Returned: the range was brought home (a delete of section V.B). Bytes received up to AsOf are
	// at home; later bytes stay in place (the rule of figure 10).
	Returned Kind = 3
	// Held: Range is a still visible part of the entry at Origin. Used only in table snapshots.
	Held Kind = 4
)

// Record is one change of a table, in the form its log keeps.
type Record struct {
	Kind     Kind
	Object   Object
	Range    Range
	Receipt  Receipt       // its own
	Time     time.Duration // time of receipt
	Location Location      // Redirected and Held
	AsOf     Receipt       // Returned
	Origin   Range         // Held: the range of the whole entry
}

// Table is the redirect table of one server (section V.B): the current location of every byte of
// the objects that are at home there. For each byte, the entry received last wins. An entry without
// visible bytes is dead and forgotten.
//
// A change is prepared (given its receipt), made durable by the caller, and applied. A change that
// was not applied has no effect, so a full disk leaves the table unchanged:
//
//	record := table.Redirect(now, object, r, location)
//	err := log.Append(record)
//	dead, err := table.Apply(record, nil) // these fragments can be removed now
//
// Redirected bytes are stored as disjoint, ordered spans, each with its entry. Create and query
// thus cost O(log n), and a query's answer does not depend on the length of the log.
type Table struct {
	home    Server
	servers Servers
	size    uint64

	objects map[Object]uint32
	held    []*object // by number; nil if the number is free
	free    []uint32  // numbers of objects
	entries arena

	issued Receipt       // last prepared
	last   Receipt       // last applied
	time   time.Duration // time of the last applied

	newest uint32  // slot of the last piece of a snapshot
	cuts   []Range // scratch
}

// object holds the redirected ranges of an object.
type object struct {
	name  Object
	spans spans
}

// NewTable returns the empty table of a server: everything is at home. Objects have at most `size`
// bytes.
func NewTable(home Server, servers Servers, size uint64) *Table {
	return &Table{home: home, servers: servers, size: size, objects: map[Object]uint32{}, newest: nothing}
}

// Len returns the number of live entries: entries with at least one visible byte.
func (t *Table) Len() int { return t.entries.live }

// Objects returns the number of objects with redirected bytes.
func (t *Table) Objects() int { return len(t.objects) }

// Last returns the receipt and the time of the last applied record.
func (t *Table) Last() (Receipt, time.Duration) { return t.last, t.time }

// Redirect prepares the record of a range that was already written durably to another server (a
// create of section V.B).
func (t *Table) Redirect(now time.Duration, o Object, r Range, at Location) Record {
	t.issued++
	return Record{Kind: Redirected, Object: o, Range: r, Receipt: t.issued, Time: now, Location: at}
}

// Return prepares the record of a range that a maintainer already brought home durably. The record
// is as of the last receipt applied when the pull started (a delete of section V.B; figure 10).
func (t *Table) Return(now time.Duration, o Object, r Range, asOf Receipt) Record {
	t.issued++
	return Record{Kind: Returned, Object: o, Range: r, Receipt: t.issued, Time: now, AsOf: asOf}
}

// Apply applies a durable record and appends to `dead` the entries that it kills: only readers that
// asked earlier need their fragments. Records are applied in receipt order; receipts may be skipped
// (of records that never became durable). On an error, of one sentence, nothing changes. A record
// prepared by this table never causes an error.
func (t *Table) Apply(r Record, dead []Entry) ([]Entry, error) {
	if err := t.check(r); err != nil {
		return dead, err
	}
	switch r.Kind {
	case Redirected:
		number := t.number(r.Object)
		dead = t.cover(number, r.Range, t.add(r, r.Range, number), dead)
		t.newest = nothing
	case Held:
		number := t.number(r.Object)
		if t.newest == nothing || t.entries.live == 0 || t.entries.at(t.newest).receipt != r.Receipt {
			t.newest = t.add(r, r.Origin, number) // pieces of one entry follow each other
		}
		t.cover(number, r.Range, t.newest, nil)
	case Returned:
		if number, ok := t.objects[r.Object]; ok {
			dead = t.uncover(number, r.Range, r.AsOf, dead)
		}
		t.newest = nothing
	}
	t.Resume(r.Receipt, r.Time)
	return dead, nil
}

// check returns an error for a record that was not prepared for this table, such as one from the log
// of another cluster.
func (t *Table) check(r Record) error {
	whole := r.Range
	if r.Kind == Held {
		whole = r.Origin
	}
	switch {
	case r.Kind != Redirected && r.Kind != Returned && r.Kind != Held:
		return fmt.Errorf("there are no records of kind %d", r.Kind)
	case r.Range.Start >= r.Range.End || r.Range.Start < whole.Start || r.Range.End > whole.End || whole.End > t.size:
		return fmt.Errorf("%d to %d is no range of object %q, which has at most %d bytes", r.Range.Start, r.Range.End,
			r.Object, t.size)
	case r.Kind != Returned && (r.Location.Server < 0 || int(r.Location.Server) >= int(t.servers) || r.Location.Server == t.home):
		return fmt.Errorf("OSD %d is not one of the %d that OSD %d redirects to", r.Location.Server, t.servers, t.home)
	case r.Receipt < t.last, r.Receipt == t.last && r.Kind != Held, r.Kind == Returned && r.AsOf >= r.Receipt:
		return fmt.Errorf("receipt %d does not follow receipt %d", r.Receipt, max(t.last, r.AsOf))
	}
	return nil
}

func (t *Table) add(r Record, whole Range, number uint32) uint32 {
	return t.entries.add(entry{start: whole.Start, end: whole.End, receipt: r.Receipt,
		fragment: r.Location.Fragment, time: r.Time, server: r.Location.Server, object: number})
}

// Query appends the location of each part of a range, in order and without a gap.
func (t *Table) Query(o Object, r Range, into []Piece) []Piece {
	at := r.Start
	if number, ok := t.objects[o]; ok {
		s := &t.held[number].spans
		for p := s.locate(r.Start); ; p = s.after(p) {
			found := s.at(p)
			if found == nil || found.start >= r.End {
				break
			}
			if found.start > at {
				into = append(into, t.atHome(Range{at, found.start}))
				at = found.start
			}
			into = append(into, t.piece(found, Range{at, min(found.end, r.End)}))
			at = min(found.end, r.End)
		}
	}
	if at < r.End {
		into = append(into, t.atHome(Range{at, r.End}))
	}
	return into
}

func (t *Table) atHome(r Range) Piece { return Piece{r, Location{t.home, 0}, r.Start, 0} }

func (t *Table) piece(s *span, r Range) Piece {
	e := t.entries.at(s.slot)
	return Piece{r, Location{e.server, e.fragment}, r.Start - e.start, e.receipt}
}

// nothing is the slot number that means no entry.
const nothing = math.MaxUint32

// number returns an object's number, a new one if nothing of the object was redirected.
func (t *Table) number(o Object) uint32 {
	if number, ok := t.objects[o]; ok {
		return number
	}
	var number uint32
	if n := len(t.free); n > 0 {
		number = t.free[n-1]
		t.free = t.free[:n-1]
		t.held[number] = &object{name: o}
	} else {
		number = uint32(len(t.held))
		t.held = append(t.held, &object{name: o})
	}
	t.objects[o] = number
	return number
}

// forget drops an object if none of its bytes is redirected.
func (t *Table) forget(number uint32) {
	o := t.held[number]
	if o.spans.count > 0 {
		return
	}
	delete(t.objects, o.name)
	t.held[number] = nil
	t.free = append(t.free, number)
	if len(t.objects) == 0 { // free the memory of a burst
		t.objects, t.held, t.free = map[Object]uint32{}, nil, nil
	}
}

// cover assigns a range of an object to an entry, or to no entry (home). It appends the entries
// that this change kills.
func (t *Table) cover(number uint32, r Range, slot uint32, dead []Entry) []Entry {
	s := &t.held[number].spans
	var space [3]span
	by := space[:0]
	var right span
	from := s.locate(r.Start)
	to, gone := from, 0
	for found := s.at(to); found != nil && found.start < r.End; found = s.at(to) {
		e := t.entries.at(found.slot)
		e.pieces--
		if found.start < r.Start {
			by = append(by, span{found.start, r.Start, found.slot})
			e.pieces++
		}
		if found.end > r.End {
			right = span{r.End, found.end, found.slot}
			e.pieces++
		}
		if e.pieces == 0 {
			dead = append(dead, t.entryOf(e))
			t.entries.drop(found.slot)
		}
		gone++
		to = s.after(to)
	}
	if slot != nothing {
		by = append(by, span{r.Start, r.End, slot})
		t.entries.at(slot).pieces++
	}
	if right.end > 0 {
		by = append(by, right)
	}
	if gone > 0 || len(by) > 0 {
		s.splice(from, to, gone, by)
	}
	return dead
}

// uncover returns to home the bytes of a range with receipts up to asOf.
func (t *Table) uncover(number uint32, r Range, asOf Receipt, dead []Entry) []Entry {
	s := &t.held[number].spans
	cuts := t.cuts[:0]
	for p := s.locate(r.Start); ; p = s.after(p) {
		found := s.at(p)
		if found == nil || found.start >= r.End {
			break
		}
		if t.entries.at(found.slot).receipt > asOf {
			continue
		}
		cut := Range{max(found.start, r.Start), min(found.end, r.End)}
		if n := len(cuts); n > 0 && cuts[n-1].End == cut.Start {
			cuts[n-1].End = cut.End
			continue
		}
		cuts = append(cuts, cut)
	}
	for _, cut := range cuts {
		dead = t.cover(number, cut, nothing, dead)
	}
	t.cuts = cuts[:0]
	t.forget(number)
	return dead
}

func (t *Table) entryOf(e *entry) Entry {
	return Entry{t.held[e.object].name, Range{e.start, e.end}, Location{e.server, e.fragment}, e.receipt,
		e.time}
}

// Snapshot returns a record of every piece of each live entry, in the order of receipts and then of
// bytes. The records rebuild a table: NewTable, Apply each record, Resume(Last).
func (t *Table) Snapshot() []Record {
	var all []span
	for _, o := range t.held {
		if o != nil {
			for _, leaf := range o.spans.leaves {
				all = append(all, leaf...)
			}
		}
	}
	slices.SortFunc(all, func(a, b span) int {
		return cmp.Or(cmp.Compare(t.entries.at(a.slot).receipt, t.entries.at(b.slot).receipt),
			cmp.Compare(a.start, b.start))
	})
	out := make([]Record, len(all))
	for i, s := range all {
		e := t.entryOf(t.entries.at(s.slot))
		out[i] = Record{Kind: Held, Object: e.Object, Range: Range{s.start, s.end}, Receipt: e.Receipt,
			Time: e.Time, Location: e.Location, Origin: e.Range}
	}
	return out
}

// Resume sets the last receipt and time, after a snapshot was applied. Receipts continue from there.
func (t *Table) Resume(last Receipt, now time.Duration) {
	t.last, t.issued, t.time = max(t.last, last), max(t.issued, last), max(t.time, now)
}

// Cursor is a position in a table, to iterate over all redirected pieces. The zero value is the
// start. The table may change meanwhile: an unchanged piece is seen once a round.
type Cursor struct {
	object uint32
	at     uint64
}

// Next returns the next piece after a cursor, with its entry. At the end of the table it returns
// false and resets the cursor to the start.
func (t *Table) Next(c *Cursor) (Piece, Entry, bool) {
	for int(c.object) < len(t.held) {
		if o := t.held[c.object]; o != nil {
			if found := o.spans.at(o.spans.locate(c.at)); found != nil {
				r := Range{max(found.start, c.at), found.end}
				c.at = r.End
				return t.piece(found, r), t.entryOf(t.entries.at(found.slot)), true
			}
		}
		c.object, c.at = c.object+1, 0
	}
	*c = Cursor{}
	return Piece{}, Entry{}, false
}
