package redirectlog

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"hotbed/dataplane/twochoice"
)

// liveEntries is the number of live entries for the log's measurements.
const liveEntries = 100_000

// filled returns a store on real files with live entries of 1000 objects.
func filled(b *testing.B) (*Folder, *Store, func() Change) {
	b.Helper()
	folder, err := OpenFolder(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = folder.Close() })
	s, _, err := Open(folder, file, 0, twochoice.Numbered(8), twochoice.MaxObject, Options{CompactAbove: -1})
	if err != nil {
		b.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 1))
	next := func() Change {
		start := random.Uint64N(liveEntries / 1000 << 20)
		return Change{Kind: twochoice.Redirected,
			Object:   twochoice.Object(fmt.Sprintf("benchmark_data_node_%08d", random.IntN(1000))),
			Range:    twochoice.Range{Start: start, End: start + 1<<20},
			Location: twochoice.Location{Server: 1, Fragment: random.Uint64()}}
	}
	for s.Table().Len() < liveEntries {
		changes := make([]Change, 1000)
		for i := range changes {
			changes[i] = next()
		}
		if _, _, err := s.Commit(0, changes); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Compact(); err != nil {
		b.Fatal(err)
	}
	return folder, s, next
}

// BenchmarkCommit makes one change durable at 100,000 live entries.
func BenchmarkCommit(b *testing.B) {
	_, s, next := filled(b)
	b.ResetTimer()
	for range b.N {
		if _, _, err := s.Commit(0, []Change{next()}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCompact rewrites a log of 100,000 live entries.
func BenchmarkCompact(b *testing.B) {
	_, s, _ := filled(b)
	b.ResetTimer()
	before := processor()
	for range b.N {
		if err := s.Compact(); err != nil {
			b.Fatal(err)
		}
	}
	report(b, before)
	b.ReportMetric(float64(s.Stats().Size)/float64(s.Table().Len()), "B/entry")
}

// BenchmarkOpen reads a log of 100,000 live entries.
func BenchmarkOpen(b *testing.B) {
	folder, s, _ := filled(b)
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	before := processor()
	for range b.N {
		s, recovery, err := Open(folder, file, 0, twochoice.Numbered(8), twochoice.MaxObject, Options{})
		if err != nil || s.Table().Len() < liveEntries || recovery.TornBytes+int64(recovery.Repaired) > 0 {
			b.Fatal(recovery, err)
		}
		b.StopTimer()
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	report(b, before)
}

// report reports processor time per operation, which other processes do not affect.
func report(b *testing.B, before time.Duration) {
	b.ReportMetric(1e3*(processor()-before).Seconds()/float64(b.N), "cpu-ms/op")
}

// processor returns this process's processor time.
func processor() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
