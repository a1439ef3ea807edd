package twochoice

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

const home = Server(0)

func newTable(tb testing.TB) *Table {
	tb.Helper()
	t, err := NewTable(home, Numbered(8), MaxObject)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// paperLog is the redirect log of section V.B as the paper describes it: a list in timestamp order,
// searched backwards for every byte. A return is inserted at the timestamp of the pull's start.
type paperLog struct {
	stamps  []Receipt // by place in the log
	records []Record
}

func (l *paperLog) add(r Record) {
	stamp := r.Receipt
	if r.Kind == Returned {
		stamp = r.AsOf
	}
	at := len(l.stamps)
	for at > 0 && l.stamps[at-1] > stamp {
		at--
	}
	l.stamps = slices.Insert(l.stamps, at, stamp)
	l.records = slices.Insert(l.records, at, r)
}

// find returns the record that holds a byte of an object; nil if it was always at home.
func (l *paperLog) find(o Object, at uint64) *Record {
	for i := len(l.records) - 1; i >= 0; i-- {
		if r := &l.records[i]; r.Object == o && r.Range.Start <= at && at < r.Range.End {
			return r
		}
	}
	return nil
}

// where returns the piece of a byte, with a range of one byte.
func (l *paperLog) where(o Object, at uint64) Piece {
	r := l.find(o, at)
	if r == nil || r.Kind != Redirected {
		return Piece{Range{at, at + 1}, Location{home, 0}, at, 0}
	}
	return Piece{Range{at, at + 1}, r.Location, at - r.Range.Start, r.Receipt}
}

// live returns the receipts of entries with at least one visible byte in these objects.
func (l *paperLog) live(objects []Object, within Range) []Receipt {
	var out []Receipt
	for _, o := range objects {
		for at := within.Start; at < within.End; at++ {
			if r := l.find(o, at); r != nil && r.Kind == Redirected {
				out = append(out, r.Receipt)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// bytesOf splits pieces into single bytes.
func bytesOf(pieces []Piece) []Piece {
	var out []Piece
	for _, p := range pieces {
		for i := range p.Range.Len() {
			at := p.Range.Start + i
			out = append(out, Piece{Range{at, at + 1}, p.Location, p.Offset + i, p.Receipt})
		}
	}
	return out
}

func query(tb testing.TB, t *Table, o Object, r Range) []Piece {
	tb.Helper()
	pieces, err := t.Query(o, r, nil)
	if err != nil {
		tb.Fatal(err)
	}
	at := r.Start
	for _, p := range pieces {
		if p.Range.Start != at || p.Range.Empty() {
			tb.Fatalf("query of %v: %v does not go on at %d", r, pieces, at)
		}
		at = p.Range.End
	}
	if at != r.End {
		tb.Fatalf("query of %v ends at %d", r, at)
	}
	return pieces
}

// compare compares a table with the log, over all bytes of a range of these objects.
func compare(tb testing.TB, t *Table, l *paperLog, objects []Object, within Range) {
	tb.Helper()
	for _, o := range objects {
		var wanted []Piece
		redirected := Range{MaxObject, 0}
		for at := within.Start; at < within.End; at++ {
			p := l.where(o, at)
			wanted = append(wanted, p)
			if p.Receipt > 0 {
				redirected = Range{min(redirected.Start, at), max(redirected.End, at+1)}
			}
		}
		if got := bytesOf(query(tb, t, o, within)); !slices.Equal(got, wanted) {
			tb.Fatalf("object %s is\n%v, and by the log\n%v", o, got, wanted)
		}
		hint, ok := t.Hint(o)
		if ok == redirected.Empty() || (ok && hint != redirected) || t.Redirects(o, within) != ok {
			tb.Fatalf("object %s: Min/Max is %v (%v), and by the log %v", o, hint, ok, redirected)
		}
	}
	var live []Receipt
	for _, e := range t.Entries() {
		live = append(live, e.Receipt)
	}
	if wanted := l.live(objects, within); !slices.Equal(live, wanted) || t.Len() != len(wanted) {
		tb.Fatalf("entries %v are live (%d), and by the log %v", live, t.Len(), wanted)
	}
	sound(tb, t)
}

// sound checks the internal invariants of a table.
func sound(tb testing.TB, t *Table) {
	tb.Helper()
	pieces, objects := map[uint32]uint32{}, 0
	total := 0
	for number, o := range t.held {
		if o == nil {
			continue
		}
		objects++
		if t.objects[o.name] != uint32(number) || o.spans.count == 0 {
			tb.Fatalf("object %q is kept wrongly, or for nothing", o.name)
		}
		end, count := uint64(0), 0
		for i, leaf := range o.spans.leaves {
			if len(leaf) == 0 || len(leaf) > leafSize || o.spans.firsts[i] != leaf[0].start {
				tb.Fatalf("leaf %d has %d spans, and its first is taken for %d", i, len(leaf),
					o.spans.firsts[i])
			}
			for _, s := range leaf {
				if s.start < end || s.start >= s.end {
					tb.Fatalf("span %v follows one that ends at %d", s, end)
				}
				end = s.end
				count++
				pieces[s.slot]++
			}
		}
		if count != o.spans.count || len(o.spans.firsts) != len(o.spans.leaves) {
			tb.Fatalf("%d spans are counted as %d", count, o.spans.count)
		}
		total += count
	}
	if objects != len(t.objects) || total != t.pieces || len(pieces) != t.entries.live {
		tb.Fatalf("%d objects, %d pieces, %d entries are counted as %d, %d, %d", objects, total,
			len(pieces), len(t.objects), t.pieces, t.entries.live)
	}
	for slot, count := range pieces {
		if t.entries.at(slot).pieces != count {
			tb.Fatalf("entry %d is in %d pieces, counted as %d", slot, count, t.entries.at(slot).pieces)
		}
	}
}

// apply applies a record to both, and compares the entries that it kills.
func apply(tb testing.TB, t *Table, l *paperLog, r Record, objects []Object, within Range) {
	tb.Helper()
	before := t.Entries()
	dead, err := t.Apply(r, nil)
	if err != nil {
		tb.Fatal(err)
	}
	l.add(r)
	left := l.live(objects, within)
	var wanted []Entry
	for _, e := range before {
		if !slices.Contains(left, e.Receipt) {
			wanted = append(wanted, e)
		}
	}
	slices.SortFunc(dead, func(a, b Entry) int { return int(a.Receipt) - int(b.Receipt) })
	if r.Kind == Redirected && len(dead) > 0 && dead[len(dead)-1].Receipt == r.Receipt {
		tb.Fatalf("entry %d is dead when it comes", r.Receipt)
	}
	if !slices.Equal(dead, wanted) {
		tb.Fatalf("%s %v: dead are %v, and by the log %v", r.Kind, r.Range, dead, wanted)
	}
}

// copyOf rebuilds a table from its snapshot.
func copyOf(tb testing.TB, t *Table) *Table {
	tb.Helper()
	out := newTable(tb)
	if err := t.Snapshot(func(r Record) error {
		_, err := out.Apply(r, nil)
		return err
	}); err != nil {
		tb.Fatal(err)
	}
	out.Resume(t.Last())
	return out
}

// runOperations runs operations of four bytes each against the log.
func runOperations(tb testing.TB, input []byte) {
	const width = 48
	objects := []Object{"a", "b"}
	if len(input) == 0 {
		return
	}
	within := Range{0, width}
	if input[0]&1 == 1 { // at the very end of the largest object
		within = Range{MaxObject - width, MaxObject}
	}
	t, l := newTable(tb), &paperLog{}
	for number := 0; len(input) >= 4 && number < 64; number++ {
		operation, from, length, more := input[0], input[1], input[2], input[3]
		input = input[4:]
		start := within.Start + uint64(from)%width
		r := Range{start, start + min(1+uint64(length)%16, within.End-start)}
		o := objects[int(operation>>1)%len(objects)]
		now := time.Duration(number) * time.Second
		var record Record
		var err error
		switch (operation >> 3) % 8 {
		case 0, 1, 2, 3, 4:
			record, err = t.Redirect(now, o, r, Location{1 + Server(more)%7, uint64(number)})
		case 5:
			record, err = t.WriteHome(now, o, r)
		case 6:
			last, _ := t.Last()
			record, err = t.Return(now, o, r, last-min(last, Receipt(more)%6))
		case 7:
			t = copyOf(tb, t)
			continue
		}
		if err != nil {
			tb.Fatal(err)
		}
		if more&0x80 == 0 { // else it never became durable: its receipt is skipped
			apply(tb, t, l, record, objects, within)
		}
		compare(tb, t, l, objects, within)
	}
	compare(tb, copyOf(tb, t), l, objects, within)
}

// FuzzTable compares every query, the Min/Max hint and the dead entries with the paper's log.
func FuzzTable(f *testing.F) {
	// Figure 9: creates, a create that swallows two of them, a delete, and one between two entries.
	f.Add([]byte{0, 2, 3, 1, 0, 8, 4, 2, 0, 14, 3, 3, 0, 3, 15, 4, 48, 2, 5, 0, 48, 10, 3, 2})
	f.Add([]byte{1, 0, 15, 1, 1, 20, 15, 2, 41, 5, 3, 0, 49, 0, 15, 5, 57, 0, 0, 0, 1, 47, 9, 7})
	f.Add([]byte{0, 0, 15, 1, 0, 4, 1, 2, 0, 8, 1, 3, 48, 0, 15, 2, 40, 0, 15, 0})
	f.Add([]byte{0, 5, 9, 0x81, 2, 5, 9, 1, 48, 5, 9, 0, 50, 5, 9, 1})
	f.Fuzz(func(t *testing.T, input []byte) { runOperations(t, input) })
}

func ExampleTable_Query() {
	t, _ := NewTable(1, Numbered(8), MaxObject)
	for i, r := range []Range{{100, 400}, {300, 900}} {
		record, _ := t.Redirect(0, "object-1", r, Location{Server: Server(3 + i), Fragment: uint64(i)})
		_, _ = t.Apply(record, nil)
	}
	pieces, _ := t.Query("object-1", Range{0, 1000}, nil)
	for _, p := range pieces {
		fmt.Println(p.Range, "OSD", p.Location.Server, "at", p.Offset)
	}
	// Output:
	// [0, 100) OSD 1 at 0
	// [100, 300) OSD 3 at 0
	// [300, 900) OSD 4 at 0
	// [900, 1000) OSD 1 at 900
}
