package twochoice

import (
	"cmp"
	"math"
	"slices"
	"time"
)

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
