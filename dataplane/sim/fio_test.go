package sim

import (
	"math"
	"testing"
	"time"

	"hotbed/dataplane/service"
)

// sequential keeps `depth` sequential I/Os of 1 MiB in flight on the disk.
type sequential struct {
	disk  *Disk
	next  int64
	write bool
	ended int64
}

func (s *sequential) Handle(k *Kernel, _ uint64) {
	s.ended++
	s.submit(k)
}

func (s *sequential) submit(k *Kernel) {
	s.disk.Submit(k, IO{Write: s.write, Offset: s.next, Bytes: 1 << 20}, s, 0)
	s.next += 1 << 20
}

// Compares the simulated disk with fio measurements on the queue disk (docs/queue-disk.md: 12 GiB,
// 4 ms, 60 MB/s; times in seconds). At depth 1 the real path adds its round trip to each I/O while
// the disk is idle. The model has no round trip, so it is faster by up to that time.
func TestTheDiskBesideTheQueueDiskUnderFio(t *testing.T) {
	spec := DiskSpec{
		Model: service.Model{PositioningMean: 4 * time.Millisecond, Bandwidth: 60e6, Size: 12 << 30},
		Depth: 32,
	}
	const span = 100 * time.Second
	check := func(what string, got, measured, tolerance float64) {
		t.Helper()
		t.Logf("%s: simulated %.4g, measured %.4g (%+.1f %%)", what, got, measured, 100*(got/measured-1))
		if math.Abs(got/measured-1) > tolerance {
			t.Errorf("%s: simulated %.4g, measured %.4g", what, got, measured)
		}
	}
	for _, c := range []struct {
		depth                    int
		iops, latency, tolerance float64
	}{{1, 235, 4.22e-3, 0.05}, {16, 246, 64.9e-3, 0.02}} {
		k := New()
		d := NewDisk(k, spec)
		load := BackgroundSpec{Jobs: 1, Depth: c.depth, Block: 4096, Range: 12 << 30}
		b := NewBackground(load, d, nil, NewStream(1, "fio"))
		b.Start(k)
		k.RunUntil(span)
		check("randread 4k IOPS", float64(b.Latency.Count())/span.Seconds(), c.iops, c.tolerance)
		check("randread 4k latency", b.Latency.Mean(), c.latency, c.tolerance)
	}
	for _, c := range []struct {
		write           bool
		depth           int
		rate, tolerance float64
	}{{true, 1, 55.5, 0.09}, {true, 4, 58.8, 0.03}, {false, 1, 57.1, 0.06}, {false, 4, 59.9, 0.01}} {
		k := New()
		d := NewDisk(k, spec)
		s := &sequential{disk: d, write: c.write}
		for range c.depth {
			s.submit(k)
		}
		k.RunUntil(span)
		check("sequential 1M MB/s", float64(s.ended<<20)/1e6/span.Seconds(), c.rate, c.tolerance)
	}
}
