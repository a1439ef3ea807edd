package twochoice

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

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
		case r.Kind == Home || p[at] <= r.AsOf:
			p[at] = 0
		}
	}
}

func TestManyEntriesAreFoundByteByByte(t *testing.T) {
	const size, operations = 1 << 16, 40_000
	random := rand.New(rand.NewPCG(7, 7))
	table, paint := newTable(t), make(painted, size)
	most := 0
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
		var record Record
		var err error
		switch n := random.IntN(10); {
		case n < 8 || number < operations/4:
			record, err = table.Redirect(now, "o", r, Location{1 + Server(n)%7, uint64(number)})
		case n == 8:
			record, err = table.WriteHome(now, "o", r)
		default:
			last, _ := table.Last()
			record, err = table.Return(now, "o", r, last-min(last, Receipt(random.IntN(4000))))
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := table.Apply(record, nil); err != nil {
			t.Fatal(err)
		}
		paint.put(record)
		most = max(most, table.Pieces())
		if number%4000 == 0 {
			check()
		}
	}
	check()
	if most < 20*leafSize {
		t.Fatalf("only %d pieces at once: the index was not tried", most)
	}
	// All of it comes home, and the table keeps nothing for it.
	last, now := table.Last()
	record, err := table.Return(now, "o", Range{0, size}, last)
	if err != nil {
		t.Fatal(err)
	}
	dead, err := table.Apply(record, nil)
	kept := len(table.held) + len(table.free) + len(table.entries.chunks) + len(table.entries.free)
	if err != nil || table.Len()+table.Pieces()+table.Objects()+kept != 0 || len(dead) == 0 {
		t.Fatalf("after all came home: %v, %d entries, %d pieces", err, table.Len(), table.Pieces())
	}
	sound(t, table)
}

// redirect makes and applies a redirection.
func redirect(t *testing.T, table *Table, o Object, r Range, at Location) Record {
	t.Helper()
	_, now := table.Last()
	record, err := table.Redirect(now, o, r, at)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Apply(record, nil); err != nil {
		t.Fatal(err)
	}
	return record
}

func TestAReturnLeavesWhatCameAfterItsPullStarted(t *testing.T) { // figure 10
	table := newTable(t)
	redirect(t, table, "o", Range{100, 200}, Location{1, 1})
	started, _ := table.Last()
	newer := redirect(t, table, "o", Range{150, 250}, Location{2, 2})
	record, err := table.Return(0, "o", Range{100, 200}, started)
	if err != nil {
		t.Fatal(err)
	}
	dead, err := table.Apply(record, nil)
	if err != nil || len(dead) != 1 || dead[0].Location.Fragment != 1 {
		t.Fatalf("dead are %v (%v)", dead, err)
	}
	want := []Piece{{Range{100, 150}, Location{home, 0}, 100, 0},
		{Range{150, 250}, Location{2, 2}, 0, newer.Receipt}}
	if got := query(t, table, "o", Range{100, 250}); !slices.Equal(got, want) {
		t.Fatalf("the range is at %v", got)
	}
	// The paper's rule would have moved Min to 200, past redirected bytes.
	if hint, ok := table.Hint("o"); !ok || hint != (Range{150, 250}) {
		t.Fatalf("Min/Max is %v", hint)
	}
}

func TestAPieceOfAFragmentTellsItsPlaceInIt(t *testing.T) {
	table := newTable(t)
	redirect(t, table, "o", Range{100, 200}, Location{1, 1})
	redirect(t, table, "o", Range{140, 160}, Location{2, 2})
	got := query(t, table, "o", Range{110, 190})
	if len(got) != 3 || got[0].Offset != 10 || got[1].Offset != 0 || got[2].Offset != 60 {
		t.Fatalf("pieces are %v", got)
	}
	if table.Len() != 2 || table.Pieces() != 3 {
		t.Fatalf("%d entries in %d pieces", table.Len(), table.Pieces())
	}
}

func TestWhatIsWrongIsToldAndChangesNothing(t *testing.T) {
	table, err := NewTable(3, Numbered(8), 4096)
	if err != nil {
		t.Fatal(err)
	}
	redirect(t, table, "o", Range{0, 100}, Location{1, 1})
	record, err := table.Redirect(time.Second, "o", Range{50, 80}, Location{2, 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Apply(record, nil); err != nil {
		t.Fatal(err)
	}
	before := table.Entries()
	var unknownServer *UnknownServerError
	var outside *RangeError
	var name *NameError
	var clock *ClockError
	var receipt *ReceiptError
	var parameter *ParameterError
	at := Location{1, 9}
	for _, c := range []struct {
		what   string
		try    func() (Record, error)
		target any
	}{
		{"an unknown OSD", func() (Record, error) {
			return table.Redirect(time.Second, "o", Range{0, 1}, Location{8, 1})
		}, &unknownServer},
		{"an OSD below 0", func() (Record, error) {
			return table.Redirect(time.Second, "o", Range{0, 1}, Location{-1, 1})
		}, &unknownServer},
		{"its own home", func() (Record, error) {
			return table.Redirect(time.Second, "o", Range{0, 1}, Location{3, 1})
		}, &parameter},
		{"an empty range", func() (Record, error) {
			return table.Redirect(time.Second, "o", Range{5, 5}, at)
		}, &outside},
		{"a range that runs backwards", func() (Record, error) {
			return table.WriteHome(time.Second, "o", Range{9, 5})
		}, &outside},
		{"a range beyond the object", func() (Record, error) {
			return table.Redirect(time.Second, "o", Range{0, 4097}, at)
		}, &outside},
		{"an object without a name", func() (Record, error) {
			return table.Redirect(time.Second, "", Range{0, 1}, at)
		}, &name},
		{"too long a name", func() (Record, error) {
			return table.Redirect(time.Second, Object(strings.Repeat("x", MaxName+1)), Range{0, 1}, at)
		}, &name},
		{"a clock that went back", func() (Record, error) {
			return table.Redirect(time.Second-1, "o", Range{0, 1}, at)
		}, &clock},
		{"a return as of the future", func() (Record, error) {
			return table.Return(time.Second, "o", Range{0, 1}, table.Issued()+1)
		}, &receipt},
		{"a record of the past", func() (Record, error) {
			_, err := table.Apply(record, nil)
			return Record{}, err
		}, &receipt},
		{"a record of an unknown kind", func() (Record, error) {
			later := record
			later.Kind, later.Receipt = 9, record.Receipt+1
			_, err := table.Apply(later, nil)
			return Record{}, err
		}, &parameter},
		{"a query beyond the object", func() (Record, error) {
			_, err := table.Query("o", Range{0, 5000}, nil)
			return Record{}, err
		}, &outside},
	} {
		if _, err := c.try(); err == nil || !errors.As(err, c.target) {
			t.Errorf("%s: the answer is %v", c.what, err)
		}
	}
	if !slices.Equal(table.Entries(), before) {
		t.Error("what was refused has changed the table")
	}
	sound(t, table)
}

func TestASnapshotThatCannotBeIsRefused(t *testing.T) {
	piece := Record{Kind: Held, Object: "o", Range: Range{10, 20}, Receipt: 5, Location: Location{1, 7},
		Origin: Range{0, 40}}
	for what, change := range map[string]func(*Record){
		"a piece outside of its entry":     func(r *Record) { r.Range = Range{30, 50} },
		"pieces that overlap":              func(r *Record) { r.Range = Range{15, 25} },
		"a piece before its time":          func(r *Record) { r.Receipt = 4 },
		"no receipt":                       func(r *Record) { r.Receipt = 0 },
		"an entry in two places":           func(r *Record) { r.Location.Fragment = 8 },
		"an entry of two objects":          func(r *Record) { r.Object = "p" },
		"an entry of two lengths":          func(r *Record) { r.Origin.End = 50 },
		"an entry that is nowhere":         func(r *Record) { r.Origin = Range{} },
		"an entry at home":                 func(r *Record) { r.Location.Server = home },
		"an entry on a server of no place": func(r *Record) { r.Location.Server = 99 },
	} {
		table := newTable(t)
		if _, err := table.Apply(piece, nil); err != nil {
			t.Fatal(err)
		}
		next := piece
		next.Range = Range{20, 30}
		change(&next)
		if _, err := table.Apply(next, nil); err == nil {
			t.Errorf("%s is taken", what)
		}
		if table.Len() != 1 || table.Pieces() != 1 {
			t.Errorf("%s has changed the table", what)
		}
		sound(t, table)
	}
	// A snapshot has consecutive pieces of one entry, but not after a change.
	table := newTable(t)
	redirect(t, table, "o", Range{0, 5}, Location{1, 1})
	last, now := table.Last()
	piece.Receipt, piece.Time = last, now
	if _, err := table.Apply(piece, nil); err == nil {
		t.Error("a piece of an entry that was redirected already is taken")
	}
}

func TestACursorMeetsAllThatIsRedirected(t *testing.T) {
	table := newTable(t)
	random := rand.New(rand.NewPCG(3, 3))
	want := map[Object]uint64{}
	for i := range 50 {
		o := Object(rune('a' + i%7))
		redirect(t, table, o, Range{uint64(i) * 10, uint64(i)*10 + 5 + random.Uint64N(20)},
			Location{1, uint64(i)})
	}
	for o := range table.objects {
		for _, p := range query(t, table, o, Range{0, 10_000}) {
			if p.Receipt > 0 {
				want[o] += p.Range.Len()
			}
		}
	}
	var cursor Cursor
	for round := range 2 {
		got := map[Object]uint64{}
		for {
			p, e, ok := table.Next(&cursor)
			if !ok {
				break
			}
			if p.Receipt != e.Receipt || p.Range.Within(e.Range) != p.Range {
				t.Fatalf("piece %v is given with entry %v", p, e)
			}
			got[e.Object] += p.Range.Len()
		}
		for o := range want {
			if got[o] != want[o] {
				t.Fatalf("round %d met %v, and there is %v", round, got, want)
			}
		}
	}
}
