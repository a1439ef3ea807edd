package twochoice

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"hotbed/dataplane/tests/must"
)

const (
	home      = Server(0)
	mostBytes = uint64(math.MaxUint64)
)

func newTable() *Table { return NewTable(home, 8, mostBytes) }

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
	pieces := t.Query(o, r, nil)
	at := r.Start
	for _, p := range pieces {
		if p.Range.Start != at || p.Range.Len() == 0 {
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
		for at := within.Start; at < within.End; at++ {
			wanted = append(wanted, l.where(o, at))
		}
		if got := bytesOf(query(tb, t, o, within)); !slices.Equal(got, wanted) {
			tb.Fatalf("object %s is\n%v, and by the log\n%v", o, got, wanted)
		}
	}
	var live []Receipt
	for _, r := range t.Snapshot() {
		live = append(live, r.Receipt)
	}
	live = slices.Compact(live)
	if wanted := l.live(objects, within); !slices.Equal(live, wanted) || t.Len() != len(wanted) {
		tb.Fatalf("entries %v are live (%d), and by the log %v", live, t.Len(), wanted)
	}
	sound(tb, t)
}

// sound checks the internal invariants of a table.
func sound(tb testing.TB, t *Table) {
	tb.Helper()
	pieces, objects := map[uint32]uint32{}, 0
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
	}
	if objects != len(t.objects) || len(pieces) != t.entries.live {
		tb.Fatalf("%d objects, %d entries are counted as %d, %d", objects, len(pieces), len(t.objects), t.entries.live)
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
	before := t.Snapshot()
	dead, err := t.Apply(r, nil)
	must.Succeed(tb, err)
	l.add(r)
	left := l.live(objects, within)
	var wanted, got []Receipt
	for _, e := range before {
		if !slices.Contains(left, e.Receipt) {
			wanted = append(wanted, e.Receipt)
		}
	}
	for _, e := range dead {
		got = append(got, e.Receipt)
	}
	slices.Sort(got)
	wanted = slices.Compact(wanted)
	if r.Kind == Redirected && len(dead) > 0 && dead[len(dead)-1].Receipt == r.Receipt {
		tb.Fatalf("entry %d is dead when it comes", r.Receipt)
	}
	if !slices.Equal(got, wanted) {
		tb.Fatalf("%d %v: dead are %v, and by the log %v", r.Kind, r.Range, dead, wanted)
	}
}

// copyOf rebuilds a table from its snapshot.
func copyOf(tb testing.TB, t *Table) *Table {
	tb.Helper()
	out := newTable()
	for _, r := range t.Snapshot() {
		_, err := out.Apply(r, nil)
		must.Succeed(tb, err)
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
		within = Range{mostBytes - width, mostBytes}
	}
	t, l := newTable(), &paperLog{}
	for number := 0; len(input) >= 4 && number < 64; number++ {
		operation, from, length, more := input[0], input[1], input[2], input[3]
		input = input[4:]
		start := within.Start + uint64(from)%width
		r := Range{start, start + min(1+uint64(length)%16, within.End-start)}
		o := objects[int(operation>>1)%len(objects)]
		now := time.Duration(number) * time.Second
		var record Record
		switch (operation >> 3) % 8 {
		case 0, 1, 2, 3, 4:
			record = t.Redirect(now, o, r, Location{1 + Server(more)%7, uint64(number)})
		case 5, 6:
			last, _ := t.Last()
			record = t.Return(now, o, r, last-min(last, Receipt(more)%6))
		case 7:
			t = copyOf(tb, t)
			continue
		}
		if more&0x80 == 0 { // else it never became durable: its receipt is skipped
			apply(tb, t, l, record, objects, within)
		}
		compare(tb, t, l, objects, within)
	}
	compare(tb, copyOf(tb, t), l, objects, within)
}

// FuzzTable compares every query and the dead entries with the paper's log.
func FuzzTable(f *testing.F) {
	// Figure 9: creates, a create that swallows two of them, a delete, and one between two entries.
	f.Add([]byte{0, 2, 3, 1, 0, 8, 4, 2, 0, 14, 3, 3, 0, 3, 15, 4, 48, 2, 5, 0, 48, 10, 3, 2})
	f.Add([]byte{1, 0, 15, 1, 1, 20, 15, 2, 41, 5, 3, 0, 49, 0, 15, 5, 57, 0, 0, 0, 1, 47, 9, 7})
	f.Add([]byte{0, 0, 15, 1, 0, 4, 1, 2, 0, 8, 1, 3, 48, 0, 15, 2, 40, 0, 15, 0})
	f.Add([]byte{0, 5, 9, 0x81, 2, 5, 9, 1, 48, 5, 9, 0, 50, 5, 9, 1})
	f.Fuzz(func(t *testing.T, input []byte) { runOperations(t, input) })
}

func TestQueriesAreThoseOfThePapersLog(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		input := make([]byte, 4*64)
		for i := range input {
			input[i] = byte(random.Uint32())
			if i%4 == 3 && random.IntN(8) > 0 {
				input[i] &= 0x7f
			}
		}
		runOperations(t, input)
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

// painted is the receipt of each byte of one object, kept byte by byte.
type painted []Receipt

func (p painted) put(r Record) {
	for at := r.Range.Start; at < r.Range.End; at++ {
		switch {
		case r.Kind == Redirected:
			p[at] = r.Receipt
		case p[at] <= r.AsOf:
			p[at] = 0
		}
	}
}

func TestManyEntriesAreFoundByteByByte(t *testing.T) {
	const size, operations = 1 << 16, 40_000
	random := rand.New(rand.NewPCG(7, 7))
	table, paint := newTable(), make(painted, size)
	leaves := 0
	check := func() {
		t.Helper()
		sound(t, table)
		for _, piece := range query(t, table, "o", Range{0, size}) {
			for at := piece.Range.Start; at < piece.Range.End; at++ {
				if paint[at] != piece.Receipt {
					t.Fatalf("byte %d is of %d, and should be of %d", at, piece.Receipt, paint[at])
				}
			}
		}
	}
	for number := range operations {
		start := uint64(random.IntN(size))
		length := 1 + random.IntN(12)
		if random.IntN(500) == 0 {
			length = random.IntN(size / 8)
		}
		r := Range{start, min(start+uint64(length)+1, size)}
		now := time.Duration(number)
		last, _ := table.Last()
		record := table.Return(now, "o", r, last-min(last, Receipt(random.IntN(4000))))
		if n := random.IntN(10); n < 8 || number < operations/4 {
			record = table.Redirect(now, "o", r, Location{1 + Server(n)%7, uint64(number)})
		}
		_, err := table.Apply(record, nil)
		must.Succeed(t, err)
		paint.put(record)
		leaves = max(leaves, len(table.held[0].spans.leaves))
		if number%4000 == 0 {
			check()
		}
	}
	check()
	if leaves < 20 {
		t.Fatalf("only %d leaves at once: the index was not tried", leaves)
	}
	// All of it comes home, and the table keeps nothing for it.
	last, now := table.Last()
	dead, err := table.Apply(table.Return(now, "o", Range{0, size}, last), nil)
	kept := len(table.held) + len(table.free) + len(table.entries.chunks) + len(table.entries.free)
	if err != nil || table.Len()+table.Objects()+kept != 0 || len(dead) == 0 {
		t.Fatalf("after all came home: %v, %d entries", err, table.Len())
	}
	sound(t, table)
}

// redirect makes and applies a redirection.
func redirect(t *testing.T, table *Table, o Object, r Range, at Location) Record {
	t.Helper()
	_, now := table.Last()
	record := table.Redirect(now, o, r, at)
	_, err := table.Apply(record, nil)
	must.Succeed(t, err)
	return record
}

func TestARecordThatCannotBeIsRefused(t *testing.T) {
	entry := Record{Kind: Redirected, Object: "o", Range: Range{10, 20}, Receipt: 6, Location: Location{1, 7}}
	piece := Record{Kind: Held, Object: "o", Range: Range{10, 20}, Receipt: 6, Location: Location{1, 7}, Origin: Range{0, 40}}
	for what, change := range map[string]func(entry, piece *Record){
		"an unknown OSD":              func(e, p *Record) { e.Location.Server, p.Location.Server = 8, -1 },
		"an entry at home":            func(e, p *Record) { e.Location.Server, p.Location.Server = home, home },
		"an empty range":              func(e, p *Record) { e.Range.End, p.Range.End = 10, 10 },
		"a range beyond the object":   func(e, p *Record) { e.Range.End, p.Origin.End = 5000, 5000 },
		"a record of the past":        func(e, p *Record) { e.Receipt, p.Receipt = 5, 4 },
		"a record of an unknown kind": func(e, p *Record) { e.Kind, p.Kind = 2, 9 },
		"a return as of the future":   func(e, p *Record) { e.Kind, e.AsOf, p.Kind, p.AsOf = Returned, 6, Returned, 9 },
		"a piece outside of an entry": func(e, p *Record) { e.Range, p.Range = Range{20, 10}, Range{30, 50} },
	} {
		table := NewTable(home, 8, 4096)
		table.Resume(5, 0)
		one, two := entry, piece
		change(&one, &two)
		for _, r := range []Record{one, two} {
			if _, err := table.Apply(r, nil); err == nil || table.Len() != 0 {
				t.Errorf("%s is taken: %+v", what, r)
			}
		}
	}
}

func TestAMaintainerPullsBetweenIdleServersWhatIsNotOverwritten(t *testing.T) {
	table := newTable()
	redirect(t, table, "a", Range{0, 10}, Location{1, 1})
	redirect(t, table, "b", Range{0, 200}, Location{2, 2})
	m, err := NewMaintainer(MaintainerParameters{Workers: 8, Bytes: 64}, table)
	must.Succeed(t, err)
	if pulls := m.Start(func(s Server) bool { return s != home }); len(pulls) != 0 {
		t.Fatalf("home is busy, and it pulls %v", pulls)
	}
	pulls := m.Start(func(s Server) bool { return s != 1 })
	if len(pulls) != 4 { // 200 bytes in pulls of 64
		t.Fatalf("it pulls %v", pulls)
	}
	for _, p := range pulls {
		if p.Location.Server != 2 || p.Range.Len() > 64 {
			t.Fatalf("it pulls %v", p)
		}
	}
	again := m.Start(func(Server) bool { return true })
	if len(again) != 1 || again[0].Object != "a" {
		t.Fatalf("then it pulls %v", again)
	}
	redirect(t, table, "a", Range{3, 5}, Location{3, 3}) // a later write is not brought home by this pull
	if left := m.Remaining(again[0]); !slices.Equal(left, []Range{{0, 3}, {5, 10}}) {
		t.Errorf("of the pull remain %v", left)
	}
}
