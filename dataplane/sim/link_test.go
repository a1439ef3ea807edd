package sim

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

const ms = time.Millisecond

func wantArrivals(t *testing.T, r *recorder, at ...time.Duration) {
	t.Helper()
	if len(r.at) != len(at) {
		t.Fatalf("arrived at %v, want %v", r.at, at)
	}
	for i := range at {
		if r.at[i] != at[i] || r.args[i] != uint64(i) {
			t.Fatalf("arrived %v at %v, want at %v", r.args, r.at, at)
		}
	}
}

func TestALinkSerializesThenDelays(t *testing.T) {
	k, r := New(), &recorder{}
	l := NewLink(LinkSpec{Rate: 1e6, Delay: 5 * ms})
	l.Send(k, 10e3, r, 0)
	l.Send(k, 20e3, r, 1)
	k.RunUntil(20 * ms)
	if s := l.Stats(k); s.Busy != 20*ms || s.Queue != 1 || s.Messages != 2 || s.Bytes != 30e3 {
		t.Errorf("stats %+v", s)
	}
	k.Run()
	l.Send(k, 1e3, r, 2) // idle again
	k.Run()
	wantArrivals(t, r, 15*ms, 35*ms, 41*ms)
}

func TestAnInfinitelyFastLinkOnlyDelays(t *testing.T) {
	k, r := New(), &recorder{}
	l := NewLink(LinkSpec{Rate: math.Inf(1), Delay: ms})
	for i := range uint64(100) {
		l.Send(k, 1<<40, r, i)
	}
	k.Run()
	if len(r.at) != 100 || k.Now() != ms {
		t.Errorf("%d arrived, now %v", len(r.at), k.Now())
	}
}

func TestAPartitionDelaysByItsLength(t *testing.T) {
	k, r := New(), &recorder{}
	l := NewLink(LinkSpec{Rate: 1e6, Delay: 5 * ms})
	l.Send(k, 10e3, r, 0) // would arrive at 15
	k.RunUntil(4 * ms)
	l.Cut(k)
	l.Cut(k) // no effect
	k.RunUntil(100 * ms)
	l.Send(k, 10e3, r, 1)
	k.RunUntil(104 * ms)
	l.Heal(k)
	l.Send(k, 10e3, r, 2)
	k.Run()
	wantArrivals(t, r, 115*ms, 125*ms, 135*ms)
}

func TestDropForgetsWhatIsInTransit(t *testing.T) {
	for _, cut := range []bool{false, true} {
		k, r, lost := New(), &recorder{}, &recorder{}
		l := NewLink(LinkSpec{Rate: 1e6})
		l.Send(k, 10e3, lost, 0)
		l.Send(k, 10e3, lost, 1)
		k.RunUntil(5 * ms)
		if cut {
			l.Cut(k)
		}
		l.Drop(k)
		if s := l.Stats(k); s.Busy != 5*ms || s.Queue != 0 {
			t.Errorf("stats %+v", s)
		}
		l.Heal(k)
		l.Send(k, 10e3, r, 0)
		k.Run()
		if len(lost.at) != 0 {
			t.Errorf("dropped messages arrived at %v", lost.at)
		}
		wantArrivals(t, r, 15*ms)
	}
}

func TestADelayFaultKeepsTheOrder(t *testing.T) {
	k, r := New(), &recorder{}
	l := NewLink(LinkSpec{Rate: 1e6, Delay: ms})
	l.Delay(50 * ms)
	l.Send(k, 1e3, r, 0) // 1 + 1 + 50
	l.Delay(0)
	l.Send(k, 1e3, r, 1) // behind the first
	k.RunUntil(60 * ms)
	l.Slow(4)
	l.Send(k, 1e3, r, 2)
	k.Run()
	wantArrivals(t, r, 52*ms, 52*ms, 65*ms)
}

func TestBadLinksAreRefused(t *testing.T) {
	for _, spec := range []LinkSpec{{Rate: 0}, {Rate: -1}, {Rate: math.NaN()}, {Rate: 1, Delay: -1}} {
		if spec.Validate() == nil {
			t.Errorf("accepted %+v", spec)
		}
	}
}

// checkLink drives a link with a program in data and checks a link's invariants. Messages arrive
// once, in order, no earlier than rate and delay allow, and never while it is cut.
func checkLink(t *testing.T, data []byte) {
	k := New()
	spec := LinkSpec{Rate: 1e6, Delay: 2 * ms}
	l := NewLink(spec)
	var sent, arrived uint64
	var earliest []time.Duration
	var bytes int64
	cut := false
	var last time.Duration
	handler := Func(func(k *Kernel, arg uint64) {
		switch {
		case cut:
			t.Fatalf("message %d arrived through a cut link", arg)
		case arg != arrived:
			t.Fatalf("message %d arrived, not %d", arg, arrived)
		case k.Now() < earliest[arg]:
			t.Fatalf("message %d arrived at %v, not before %v", arg, k.Now(), earliest[arg])
		case k.Now() < last:
			t.Fatal("time ran backwards")
		}
		arrived, last = arrived+1, k.Now()
	})
	for ; len(data) >= 3; data = data[3:] {
		k.RunUntil(k.Now() + time.Duration(data[0])*50*time.Microsecond)
		switch data[1] % 8 {
		case 0:
			l.Cut(k)
			cut = true
		case 1:
			l.Heal(k)
			cut = false
		case 2:
			l.Delay(time.Duration(data[2]) * 100 * time.Microsecond)
		default:
			n := int64(data[2]) * 40
			bytes += n
			took := time.Duration(n) * time.Microsecond
			// Also not before all bytes sent so far can have been serialized since the start.
			earliest = append(earliest, max(k.Now()+took, time.Duration(bytes)*time.Microsecond)+spec.Delay)
			l.Send(k, n, handler, sent)
			sent++
		}
		if s := l.Stats(k); s.Queue != int(sent-arrived) || s.Busy > k.Now() {
			t.Fatalf("%d sent, %d arrived, stats %+v", sent, arrived, s)
		}
	}
	l.Heal(k)
	cut = false
	k.Run()
	if arrived != sent {
		t.Fatalf("%d of %d messages arrived", arrived, sent)
	}
}

func FuzzLink(f *testing.F) {
	f.Add([]byte{0, 3, 255, 9, 0, 0, 9, 3, 1, 200, 1, 0})
	f.Fuzz(checkLink)
}

func TestLinkProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 1))
	for range 300 {
		data := make([]byte, 3*rng.IntN(200))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		checkLink(t, data)
	}
}
