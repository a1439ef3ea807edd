package twochoice

import (
	"fmt"
	"math"
	"time"
)

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
