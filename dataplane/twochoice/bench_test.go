package twochoice

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"hotbed/dataplane/internal/command"
)

// liveEntries is the number of live entries for the redirect table's measurements.
const liveEntries = 100_000

const write = 1 << 20 // bytes of a redirected write

// filled returns a table full of random writes to this many objects, as in figure 12.
func filled(tb testing.TB, objects int, random *rand.Rand) (*Table, func() (Object, Range)) {
	t := newTable()
	// The size lets about as many entries be live as fit without overlap.
	size := uint64(liveEntries/objects) * write
	names := make([]Object, objects)
	for i := range names {
		names[i] = Object(fmt.Sprintf("benchmark_data_node_%08d", i))
	}
	next := func() (Object, Range) {
		start := random.Uint64N(size)
		return names[random.IntN(objects)], Range{start, start + write}
	}
	for t.Len() < liveEntries {
		o, r := next()
		create(tb, t, o, r, nil)
	}
	return t, next
}

func create(tb testing.TB, t *Table, o Object, r Range, dead []Entry) []Entry {
	dead, err := t.Apply(t.Redirect(0, o, r, Location{1, 1}), dead)
	if err != nil {
		tb.Fatal(err)
	}
	return dead
}

// BenchmarkRedirect creates and queries at 100,000 live entries, in one and in many objects.
func BenchmarkRedirect(b *testing.B) {
	for _, objects := range []int{1, 1000} {
		b.Run(fmt.Sprintf("create/%d", objects), func(b *testing.B) {
			t, next := filled(b, objects, rand.New(rand.NewPCG(1, 1)))
			var dead []Entry
			b.ReportAllocs()
			b.ResetTimer()
			before := command.ProcessorTime()
			for range b.N {
				o, r := next()
				dead = create(b, t, o, r, dead[:0])
			}
			report(b, before)
			b.ReportMetric(float64(t.Len()), "live")
		})
		b.Run(fmt.Sprintf("query/%d", objects), func(b *testing.B) {
			t, next := filled(b, objects, rand.New(rand.NewPCG(1, 1)))
			var pieces []Piece
			b.ReportAllocs()
			b.ResetTimer()
			before := command.ProcessorTime()
			for range b.N {
				o, r := next()
				pieces = t.Query(o, r, pieces[:0])
			}
			report(b, before)
			b.ReportMetric(float64(t.Len()), "live")
		})
	}
}

// BenchmarkRedirectMemory reports the memory per live entry, including the table's own.
func BenchmarkRedirectMemory(b *testing.B) {
	for _, objects := range []int{1, 1000, liveEntries} {
		b.Run(fmt.Sprint(objects), func(b *testing.B) {
			before := heap() // once, whatever b.N is
			t, _ := filled(b, objects, rand.New(rand.NewPCG(1, 1)))
			b.ReportMetric(float64(heap()-before)/float64(t.Len()), "B/entry")
			runtime.KeepAlive(t)
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// report reports processor time per operation, which other processes do not affect.
func report(b *testing.B, before time.Duration) {
	b.ReportMetric(float64((command.ProcessorTime()-before).Microseconds())/float64(b.N), "cpu-us/op")
}
