package twochoice

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Object is the name of an object; 1 to MaxName bytes.
type Object string

// MaxName is the maximum length of an object's name in bytes.
const MaxName = 4096

// MaxObject is the maximum size of an object in bytes (section V.B).
const MaxObject uint64 = math.MaxUint64

// Range is a range of bytes, from Start up to but not including End.
type Range struct{ Start, End uint64 }

// Len returns the number of bytes in the range.
func (r Range) Len() uint64 { return r.End - r.Start }

// Empty reports whether the range has no bytes.
func (r Range) Empty() bool { return r.Start >= r.End }

// Overlaps reports whether two ranges have a byte in common.
func (r Range) Overlaps(o Range) bool { return max(r.Start, o.Start) < min(r.End, o.End) }

// Within returns the intersection of r and o; empty if they do not overlap.
func (r Range) Within(o Range) Range {
	out := Range{max(r.Start, o.Start), min(r.End, o.End)}
	if out.Start > out.End {
		out.End = out.Start
	}
	return out
}

func (r Range) String() string { return fmt.Sprintf("[%d, %d)", r.Start, r.End) }

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
	// Home: the range was written at home. This shadows earlier redirections.
	Home Kind = 2
	// Returned: the range was brought home (a delete of section V.B). Bytes received up to AsOf are
	// at home; later bytes stay in place (the rule of figure 10).
	Returned Kind = 3
	// Held: Range is a still visible part of the entry at Origin. Used only in table snapshots.
	Held Kind = 4
)

func (k Kind) String() string {
	switch k {
	case Redirected:
		return "redirected"
	case Home:
		return "home"
	case Returned:
		return "returned"
	case Held:
		return "held"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

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

// Entry returns the entry of a Redirected or Held record.
func (r Record) Entry() Entry {
	e := Entry{Object: r.Object, Range: r.Range, Location: r.Location, Receipt: r.Receipt, Time: r.Time}
	if r.Kind == Held {
		e.Range = r.Origin
	}
	return e
}

// Table is the redirect table of one server (section V.B): the current location of every byte of
// the objects that are at home there. For each byte, the entry received last wins. An entry without
// visible bytes is dead and forgotten.
//
// A change is prepared (checked, and given its receipt), made durable by the caller, and applied. A
// change that was not applied has no effect, so a full disk leaves the table unchanged:
//
//	record, err := table.Redirect(now, object, r, location)
//	err = log.Append(record)
//	dead, err := table.Apply(record, nil) // these fragments can be removed now
//
// Redirected bytes are stored as disjoint, ordered spans, each with its entry. Create and query
// thus cost O(log n), and a query's answer does not depend on the length of the log.
type Table struct {
	home    Server
	servers *Servers
	size    uint64

	objects map[Object]uint32
	held    []*object // by number; nil if the number is free
	free    []uint32  // numbers of objects
	entries arena
	pieces  int

	issued Receipt       // last prepared
	last   Receipt       // last applied
	now    time.Duration // time of the last prepared
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
// bytes (MaxObject for no limit).
func NewTable(home Server, servers *Servers, size uint64) (*Table, error) {
	if err := servers.Check(home); err != nil {
		return nil, err
	}
	if size == 0 {
		return nil, &ParameterError{"the size of objects", "0", "1 to 2^64-1 bytes"}
	}
	return &Table{home: home, servers: servers, size: size, objects: map[Object]uint32{},
		newest: nothing}, nil
}

// Len returns the number of live entries: entries with at least one visible byte.
func (t *Table) Len() int { return t.entries.live }

// Pieces returns the number of visible pieces of the live entries.
func (t *Table) Pieces() int { return t.pieces }

// Objects returns the number of objects with redirected bytes.
func (t *Table) Objects() int { return len(t.objects) }

// Last returns the receipt and the time of the last applied record.
func (t *Table) Last() (Receipt, time.Duration) { return t.last, t.time }

// Issued returns the last receipt that was given.
func (t *Table) Issued() Receipt { return t.issued }

// Check returns a *NameError or a *RangeError for a range that an object cannot have.
func (t *Table) Check(o Object, r Range) error {
	if len(o) == 0 || len(o) > MaxName {
		return &NameError{len(o)}
	}
	if r.Empty() || r.End > t.size {
		return &RangeError{o, r, t.size}
	}
	return nil
}

// Redirect prepares the record of a range that was already written durably to another server (a
// create of section V.B).
func (t *Table) Redirect(now time.Duration, o Object, r Range, at Location) (Record, error) {
	if err := t.servers.Check(at.Server); err != nil {
		return Record{}, err
	}
	if at.Server == t.home {
		return Record{}, &ParameterError{"a redirection's OSD", fmt.Sprint(at.Server),
			"any but the object's home"}
	}
	return t.prepare(Record{Kind: Redirected, Object: o, Range: r, Location: at}, now)
}

// WriteHome prepares the record of a range that was already written durably at home. It is needed
// if a byte of the range is redirected (see Redirects), and shadows the redirection.
func (t *Table) WriteHome(now time.Duration, o Object, r Range) (Record, error) {
	return t.prepare(Record{Kind: Home, Object: o, Range: r}, now)
}

// Return prepares the record of a range that a maintainer already brought home durably. The record
// is as of the last receipt applied when the pull started (a delete of section V.B; figure 10).
func (t *Table) Return(now time.Duration, o Object, r Range, asOf Receipt) (Record, error) {
	if asOf > t.issued {
		return Record{}, &ReceiptError{asOf, t.issued, "a return cannot be as of what comes later"}
	}
	return t.prepare(Record{Kind: Returned, Object: o, Range: r, AsOf: asOf}, now)
}

func (t *Table) prepare(r Record, now time.Duration) (Record, error) {
	if err := t.Check(r.Object, r.Range); err != nil {
		return Record{}, err
	}
	if now < t.now {
		return Record{}, &ClockError{Now: now, Last: t.now}
	}
	if t.issued == math.MaxUint64 {
		return Record{}, &ReceiptError{t.issued, t.last, "there are no more receipts"}
	}
	t.now = now
	t.issued++
	r.Receipt, r.Time = t.issued, now
	return r, nil
}

// Apply applies a durable record and appends to `dead` the entries that it kills: only readers that
// asked earlier need their fragments. Records are applied in receipt order; receipts may be skipped
// (of records that never became durable). On an error nothing changes. A record prepared by this
// table never causes an error.
func (t *Table) Apply(r Record, dead []Entry) ([]Entry, error) {
	if err := t.applicable(r); err != nil {
		return dead, err
	}
	switch r.Kind {
	case Redirected:
		number := t.number(r.Object)
		slot := t.entries.add(entry{start: r.Range.Start, end: r.Range.End, receipt: r.Receipt,
			fragment: r.Location.Fragment, time: r.Time, server: r.Location.Server, object: number})
		dead = t.cover(number, r.Range, slot, dead)
	case Held:
		t.hold(r)
	case Home, Returned:
		if number, ok := t.objects[r.Object]; ok {
			asOf := r.AsOf
			if r.Kind == Home {
				asOf = r.Receipt
			}
			dead = t.uncover(number, r.Range, asOf, dead)
		}
	}
	if r.Kind != Held {
		t.newest = nothing
	}
	t.last, t.time = r.Receipt, r.Time
	t.issued, t.now = max(t.issued, r.Receipt), max(t.now, r.Time)
	return dead, nil
}

// applicable checks a record against the table's state.
func (t *Table) applicable(r Record) error {
	if err := t.Check(r.Object, r.Range); err != nil {
		return err
	}
	if r.Kind < Redirected || r.Kind > Held {
		return &ParameterError{"a record's kind", r.Kind.String(), "redirected, home, returned or held"}
	}
	if r.Kind == Redirected || r.Kind == Held {
		if err := t.servers.Check(r.Location.Server); err != nil {
			return err
		}
		if r.Location.Server == t.home {
			return &ParameterError{"a redirection's OSD", fmt.Sprint(r.Location.Server),
				"any but the object's home"}
		}
	}
	if r.Kind == Held {
		return t.holdable(r)
	}
	if r.Receipt <= t.last {
		return &ReceiptError{r.Receipt, t.last, "records are applied in the order of their receipts"}
	}
	if r.Time < t.time {
		return &ClockError{Now: r.Time, Last: t.time}
	}
	if r.Kind == Returned && r.AsOf >= r.Receipt {
		return &ReceiptError{r.AsOf, r.Receipt, "a return cannot be as of what comes later"}
	}
	return nil
}

// Redirects reports whether a byte of a range is redirected. If so, a write at home to the range
// needs a record (WriteHome) before its acknowledgement.
func (t *Table) Redirects(o Object, r Range) bool {
	number, ok := t.objects[o]
	if !ok {
		return false
	}
	s := &t.held[number].spans
	first := s.at(s.locate(r.Start))
	return first != nil && first.start < r.End
}

// Hint returns the range from the first to the last redirected byte of an object (the Min/Max pair
// of section V.B), or false if there is none. The paper moves only Min at a delete, even if a later
// entry is in that range. Hint is exact at no cost.
func (t *Table) Hint(o Object) (Range, bool) {
	number, ok := t.objects[o]
	if !ok {
		return Range{}, false
	}
	return t.held[number].spans.bounds()
}

// Query appends the location of each part of a range, in order and without a gap.
func (t *Table) Query(o Object, r Range, into []Piece) ([]Piece, error) {
	if err := t.Check(o, r); err != nil {
		return into, err
	}
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
	return into, nil
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
	to, gone, before := from, 0, s.count
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
	t.pieces += s.count - before
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

// holdable checks a snapshot record: pieces are disjoint and in receipt order.
func (t *Table) holdable(r Record) error {
	if r.Receipt < t.last || r.Receipt == 0 {
		return &ReceiptError{r.Receipt, t.last, "a snapshot is in the order of receipts"}
	}
	if err := t.Check(r.Object, r.Origin); err != nil {
		return err
	}
	if r.Receipt == t.last && (t.newest == nothing || t.entryOf(t.entries.at(t.newest)) != r.Entry()) {
		return &ReceiptError{r.Receipt, t.last, "the pieces of an entry differ in what they are pieces of"}
	}
	if r.Range.Within(r.Origin) != r.Range {
		return &RangeError{r.Object, r.Range, r.Origin.End}
	}
	if t.Redirects(r.Object, r.Range) {
		return &ReceiptError{r.Receipt, t.last, "pieces of a snapshot overlap"}
	}
	return nil
}

// hold adds a piece of a snapshot. Pieces of one entry follow each other.
func (t *Table) hold(r Record) {
	number := t.number(r.Object)
	slot := t.newest
	if slot == nothing || t.entries.live == 0 || t.entries.at(slot).receipt != r.Receipt {
		slot = t.entries.add(entry{start: r.Origin.Start, end: r.Origin.End, receipt: r.Receipt,
			fragment: r.Location.Fragment, time: r.Time, server: r.Location.Server, object: number})
		t.newest = slot
	}
	t.cover(number, r.Range, slot, nil)
}

func (t *Table) entryOf(e *entry) Entry {
	return Entry{t.held[e.object].name, Range{e.start, e.end}, Location{e.server, e.fragment}, e.receipt,
		e.time}
}

// Snapshot calls each for every piece of each live entry, in the order of receipts and then of
// bytes. The records rebuild a table: NewTable, Apply each record, Resume(Last). Snapshot stops at
// the first error and returns it.
func (t *Table) Snapshot(each func(Record) error) error {
	all := make([]span, 0, t.pieces)
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
	for _, s := range all {
		e := t.entryOf(t.entries.at(s.slot))
		err := each(Record{Kind: Held, Object: e.Object, Range: Range{s.start, s.end}, Receipt: e.Receipt,
			Time: e.Time, Location: e.Location, Origin: e.Range})
		if err != nil {
			return err
		}
	}
	return nil
}

// Resume sets the last receipt and time after a snapshot was applied. Receipts continue from there.
func (t *Table) Resume(last Receipt, now time.Duration) {
	t.last, t.issued = max(t.last, last), max(t.issued, last)
	t.time, t.now = max(t.time, now), max(t.now, now)
}

// Entries returns the live entries in receipt order: the log of figure 9.
func (t *Table) Entries() []Entry {
	var out []Entry
	_ = t.Snapshot(func(r Record) error {
		if n := len(out); n == 0 || out[n-1].Receipt != r.Receipt {
			out = append(out, r.Entry())
		}
		return nil
	})
	return out
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
