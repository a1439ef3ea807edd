package sim

import (
	"math"
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
	l.Cut(k) // once is enough
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
	l.Send(k, 1e3, r, 1) // behind it
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
