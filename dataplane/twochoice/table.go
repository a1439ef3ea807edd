package twochoice

import (
	"fmt"
	"math"
	"time"
)

// Table is the redirect table of one server (section V.B): for every byte of the objects that are at
// home there, where it is now. It is what its log amounts to: the entry that was received last wins,
// byte by byte, and an entry that no byte is left of is dead and forgotten.
//
// A change is prepared (checked, and given its receipt), made durable by the caller, and applied;
// what was not applied has changed nothing, so that a full disk leaves the table as it was:
//
//	record, err := table.Redirect(now, object, r, location)
//	err = log.Append(record)
//	dead, err := table.Apply(record, nil) // these fragments can be removed now
//
// The bytes that are redirected are kept as disjoint spans in order, each naming its entry, so that
// create and query cost O(log n), and a query's answer does not depend on the length of the log.
type Table struct {
	home    Server
	servers *Servers
	size    uint64

	objects map[Object]uint32
	held    []*object // by number; nil when it is free
	free    []uint32  // numbers of objects
	entries arena
	pieces  int

	issued Receipt       // the last that was prepared
	last   Receipt       // the last that was applied
	now    time.Duration // of the last that was prepared
	time   time.Duration // of the last that was applied

	newest uint32  // slot of the last piece of a snapshot
	cuts   []Range // scratch
}

// object is what is redirected of an object.
type object struct {
	name  Object
	spans spans
}

// NewTable returns the empty table of a server: everything is at home. Objects have at most `size`
// bytes (MaxObject when that is all the same).
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

// Home is the server whose table it is.
func (t *Table) Home() Server { return t.home }

// Servers are those that it knows.
func (t *Table) Servers() *Servers { return t.servers }

// Size is the most bytes that an object may have.
func (t *Table) Size() uint64 { return t.size }

// Len is how many entries are live: some byte of them is where they say. Pieces is in how many
// stretches, Objects of how many objects.
func (t *Table) Len() int { return t.entries.live }

// Pieces is in how many stretches the live entries are visible.
func (t *Table) Pieces() int { return t.pieces }

// Objects is of how many objects something is redirected.
func (t *Table) Objects() int { return len(t.objects) }

// Last is the receipt and the time of what was applied last.
func (t *Table) Last() (Receipt, time.Duration) { return t.last, t.time }

// Issued is the last receipt that was given.
func (t *Table) Issued() Receipt { return t.issued }

// Check answers with a *NameError or a *RangeError for a range that an object cannot have.
func (t *Table) Check(o Object, r Range) error {
	if len(o) == 0 || len(o) > MaxName {
		return &NameError{len(o)}
	}
	if r.Empty() || r.End > t.size {
		return &RangeError{o, r, t.size}
	}
	return nil
}

// Redirect prepares the record of a range that was written to another server, durably, before (a
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

// WriteHome prepares the record of a range that was written at home, durably, before. It is needed
// where something of the range is redirected (see Redirects), and shadows that.
func (t *Table) WriteHome(now time.Duration, o Object, r Range) (Record, error) {
	return t.prepare(Record{Kind: Home, Object: o, Range: r}, now)
}

// Return prepares the record of a range that a maintainer brought home, durably, before: as of the
// receipt that had been applied last when it started (a delete of section V.B; figure 10).
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

// Apply makes the change of a record that is durable, and appends to `dead` the entries that are
// dead now: nothing but readers that asked earlier needs their fragments. Records are applied in the
// order of their receipts; receipts may be left out (of records that were never made durable). On an
// error, which a record that was prepared by this table never gives, nothing has changed.
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

// applicable checks a record against what there is.
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

// Redirects says whether some byte of a range is redirected: a write at home to the range needs a
// record (WriteHome) before it may be acknowledged.
func (t *Table) Redirects(o Object, r Range) bool {
	number, ok := t.objects[o]
	if !ok {
		return false
	}
	s := &t.held[number].spans
	first := s.at(s.locate(r.Start))
	return first != nil && first.start < r.End
}

// Hint is from the first to the last byte of an object that is redirected (the Min/Max pair of
// section V.B); false when none is. The paper moves only Min when something is deleted, and moves it
// though a later entry may be in that range; this is the exact one, at no cost.
func (t *Table) Hint(o Object) (Range, bool) {
	number, ok := t.objects[o]
	if !ok {
		return Range{}, false
	}
	return t.held[number].spans.bounds()
}

// Query appends where each part of a range is, in order and without a gap.
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
