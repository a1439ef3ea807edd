package service

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"hotbed/dataplane/tests/seeds"
)

func TestReleaseEmptiesTheQueue(t *testing.T) {
	s := NewServer(disk(), 0)
	for range 100 {
		s.Arrive(0, 1<<30, 1<<20)
	}
	busy := s.Busy(time.Millisecond)
	s.Release(time.Millisecond)
	if start, _ := s.Arrive(2*time.Millisecond, 0, 512); start != 2*time.Millisecond {
		t.Errorf("after a release the disk is busy until %v", start)
	}
	if busy != time.Millisecond {
		t.Errorf("busy %v, want 1ms", busy)
	}
}

// checkSchedule drives a server with arrivals decoded from data. It checks the properties of a
// work-conserving, non-overlapping first-come-first-served queue.
func checkSchedule(t *testing.T, data []byte) {
	m := disk()
	s := NewServer(m, 0)
	var now, last, work time.Duration
	var head int64
	for len(data) >= 8 {
		gap := binary.LittleEndian.Uint16(data)
		where := binary.LittleEndian.Uint32(data[2:])
		size := binary.LittleEndian.Uint16(data[6:])
		data = data[8:]
		now += time.Duration(gap) * time.Microsecond
		offset := int64(where) * 512 % m.Size
		n := (int64(size)%2048 + 1) * 512
		start, end := s.Arrive(now, offset, n)
		if start < now {
			t.Fatalf("starts at %v before it arrives at %v", start, now)
		}
		if start < last {
			t.Fatalf("starts at %v while the one before ends at %v", start, last)
		}
		if start != max(now, last) {
			t.Fatalf("idles from %v to %v with work waiting", max(now, last), start)
		}
		if want := m.Service(head, offset, n); end-start != want {
			t.Fatalf("served in %v, model says %v", end-start, want)
		}
		work += end - start
		head, last = offset+n, end
	}
	if got := s.Busy(last); got != work {
		t.Fatalf("busy %v, work %v", got, work)
	}
}

func FuzzSchedule(f *testing.F) {
	seeds.Add(f, 200, 1600)
	f.Add([]byte{0, 0, 1, 2, 3, 4, 5, 6, 255, 255, 9, 9, 9, 9, 0, 0})
	f.Fuzz(checkSchedule)
}

// TestTheModelIsMG1 in virtual time, with enough requests; the wall-clock test relies on it.
// Consecutive seek distances are slightly correlated (a head at the edge makes both neighbours
// long). Pollaczek-Khinchine ignores this effect, which is below 1 %.
func TestTheModelIsMG1(t *testing.T) {
	m := disk()
	for _, rho := range []float64{0.3, 0.5, 0.8} {
		requests := Poisson(m, rho, 1000000, 4096, rand.New(rand.NewPCG(11, 13)))
		var sum time.Duration
		for _, w := range Waits(m, requests) {
			sum += w
		}
		mean, second := m.RandomMoments(4096)
		want := PollaczekKhinchine(rho/mean, mean, second)
		got := sum.Seconds() / float64(len(requests))
		if e := got/want - 1; math.Abs(e) > 0.03 {
			t.Errorf("rho %.1f: mean wait %.3f ms, predicted %.3f ms, %+.1f %%",
				rho, got*1e3, want*1e3, 100*e)
		}
	}
}
