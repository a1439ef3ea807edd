package twochoice

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func always(Server) bool { return true }

func newMaintainer(t *testing.T, table *Table, workers int) *Maintainer {
	t.Helper()
	m, err := NewMaintainer(MaintainerParameters{Workers: workers, Bytes: 64}, table)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// world is a home with its disk, other servers' fragments, a table and a maintainer. It does an
// agent's work around them, one step of one actor at a time.
type world struct {
	t         *testing.T
	random    *rand.Rand
	table     *Table
	m         *Maintainer
	disk      []byte            // object at home
	fragments map[uint64][]byte // by number
	want      []byte            // what a reader must see
	next      uint64
	pulls     []*underWay
	moved     int
	overtaken int
}

// underWay is a pull with the progress of its reader and writer.
type underWay struct {
	*Pull
	offset  uint64 // of the range in its fragment
	data    []byte // data read so far
	ranges  []Range
	written bool
}

const width = 256

func newWorld(t *testing.T, seed uint64, workers int) *world {
	table := newTable()
	return &world{t: t, random: rand.New(rand.NewPCG(seed, 11)), table: table,
		m: newMaintainer(t, table, workers), disk: make([]byte, width), want: make([]byte, width),
		fragments: map[uint64][]byte{}}
}

func (w *world) someRange() Range {
	start := w.random.Uint64N(width)
	return Range{start, min(start+1+w.random.Uint64N(100), width)}
}

// record applies a prepared record and removes the fragments of dead entries.
func (w *world) record(r Record) {
	w.t.Helper()
	dead, err := w.table.Apply(r, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range dead {
		delete(w.fragments, e.Location.Fragment)
	}
}

// redirected performs a write that another server took.
func (w *world) redirected() {
	r := w.someRange()
	w.next++
	data := slices.Repeat([]byte{byte(w.random.Uint32())}, int(r.Len()))
	w.fragments[w.next] = data
	w.record(w.table.Redirect(0, "o", r, Location{1 + Server(w.random.IntN(7)), w.next}))
	copy(w.want[r.Start:], data)
}

// goOn advances a pull by one step, or gives it up.
func (w *world) goOn() {
	if len(w.pulls) == 0 {
		return
	}
	i := w.random.IntN(len(w.pulls))
	p := w.pulls[i]
	over := func() {
		w.m.End(p.Pull)
		w.pulls = slices.Delete(w.pulls, i, i+1)
	}
	if w.random.IntN(40) == 0 {
		over()
		return
	}
	switch {
	case p.ranges == nil && len(p.data) < int(p.Range.Len()):
		from, ok := w.fragments[p.Location.Fragment]
		if !ok { // the entry is dead and its fragment removed
			over()
			return
		}
		rest := from[p.offset+uint64(len(p.data)) : p.offset+p.Range.Len()]
		p.data = append(p.data, rest[:min(len(rest), 1+w.random.IntN(40))]...)
	case p.ranges == nil:
		if p.ranges = w.m.Remaining(p.Pull); len(p.ranges) == 0 { // later writes came
			w.overtaken++
			over()
		}
	case !p.written:
		for _, r := range p.ranges { // byte by byte, and perhaps incomplete
			for at := r.Start; at < r.End; at++ {
				if w.disk[at] == p.data[at-p.Range.Start] {
					continue
				}
				w.disk[at] = p.data[at-p.Range.Start]
				if w.random.IntN(30) == 0 {
					return
				}
			}
		}
		p.written = true
	default:
		for _, r := range p.ranges {
			w.record(w.table.Return(0, p.Object, r, p.AsOf))
		}
		w.moved++
		over()
	}
}

// start begins the pulls of a maintainer.
func (w *world) start(idle func(Server) bool) {
	for _, p := range w.m.Start(idle) {
		offset := w.table.Query("o", p.Range, nil)[0].Offset
		w.pulls = append(w.pulls, &underWay{Pull: p, offset: offset})
	}
}

// read compares a reader's view with the acknowledged bytes.
func (w *world) read() {
	w.t.Helper()
	for _, piece := range query(w.t, w.table, "o", Range{0, width}) {
		for i := range piece.Range.Len() {
			at := piece.Range.Start + i
			var got byte
			if piece.Receipt > 0 {
				fragment, ok := w.fragments[piece.Location.Fragment]
				if !ok {
					w.t.Fatalf("byte %d is in a fragment that was removed", at)
				}
				got = fragment[piece.Offset+i]
			} else {
				got = w.disk[at]
			}
			if got != w.want[at] {
				w.t.Fatalf("byte %d is %d, and %d was acknowledged", at, got, w.want[at])
			}
		}
	}
}

func TestNothingIsLostWhileWritersRunAgainstTheMaintainer(t *testing.T) {
	moved, overtaken := 0, 0
	for seed := range uint64(400) {
		w := newWorld(t, seed, 1+int(seed%3))
		idle := func(s Server) bool { return s == home || w.random.IntN(4) > 0 }
		for range 300 {
			switch w.random.IntN(8) {
			case 0:
				w.redirected()
			case 1:
				w.start(idle)
			default:
				w.goOn()
			}
			w.read()
		}
		moved += w.moved
		overtaken += w.overtaken
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
	if moved < 400 || overtaken == 0 {
		t.Fatalf("%d pulls came to their end, %d were overtaken: too little was tried", moved, overtaken)
	}
}

func TestAllComesHomeWhenItIsIdle(t *testing.T) {
	w := newWorld(t, 1, 2)
	for range 30 {
		w.redirected()
	}
	for steps := 0; w.table.Len() > 0; steps++ {
		w.start(always)
		w.goOn()
		if steps > 20_000 {
			t.Fatalf("%d entries are left", w.table.Len())
		}
	}
	if !slices.Equal(w.disk, w.want) || len(w.fragments) != 0 || w.table.Objects() != 0 {
		t.Fatal("what came home is another, or something is left elsewhere")
	}
}

func TestAMaintainerStartsOnlyBetweenIdleServers(t *testing.T) {
	table := newTable()
	redirect(t, table, "a", Range{0, 10}, Location{1, 1})
	redirect(t, table, "b", Range{0, 200}, Location{2, 2})
	m := newMaintainer(t, table, 8)
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
	if again := m.Start(always); len(again) != 1 || again[0].Object != "a" {
		t.Fatalf("then it pulls %v", again)
	}
}
