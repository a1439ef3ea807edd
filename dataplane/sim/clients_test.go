package sim

import (
	"testing"
	"time"
)

func TestAClosedLoopKeepsOneRequestAClientInFlight(t *testing.T) {
	k := New()
	st := NewStation(1)
	flying := map[uint64]bool{}
	target := TargetFunc(func(k *Kernel, id uint64, done Handler) {
		if flying[id] {
			t.Fatalf("client %d sent a second request", id)
		}
		flying[id] = true
		st.Submit(k, 10*ms, Func(func(k *Kernel, id uint64) {
			delete(flying, id)
			done.Handle(k, id)
		}), id)
	})
	loop := NewClosedLoop(4, Constant(20*ms), NewStream(1, "think"), target)
	loop.Start(k)
	k.RunUntil(time.Second)
	// The first ends at 30 ms, then one every 10 ms: the station is never idle after 20 ms.
	if n := loop.Latency.Count(); n != 98 {
		t.Errorf("%d requests ended, want 98", n)
	}
	if got := loop.Latency.Max(); got != 40*ms {
		t.Errorf("the longest took %v", got)
	}
	loop.Stop()
	k.Run()
	if k.Now() > 1100*ms || len(flying) != 0 {
		t.Errorf("stopped at %v with %d in flight", k.Now(), len(flying))
	}
}

func TestAnImmediateTargetDoesNotRecurse(t *testing.T) {
	k := New()
	loop := NewClosedLoop(1, Constant(0), NewStream(1, "think"),
		TargetFunc(func(k *Kernel, id uint64, done Handler) { done.Handle(k, id) }))
	loop.Start(k)
	for range 1000000 {
		k.Step()
	}
	if n := loop.Latency.Count(); n < 999999 {
		t.Errorf("%d requests", n)
	}
}

func TestAnOpenLoopCountsFromTheIntendedStart(t *testing.T) {
	k := New()
	inFlight, most := 0, 0
	target := TargetFunc(func(k *Kernel, id uint64, done Handler) {
		inFlight++
		most = max(most, inFlight)
		k.After(25*ms, Func(func(k *Kernel, id uint64) {
			inFlight--
			done.Handle(k, id)
		}), id)
	})
	src := NewOpenLoop(Constant(10*ms), NewStream(1, "arrivals"), target)
	src.Limit = 2
	src.Start(k)
	k.RunUntil(1005 * ms)
	if src.Offered() != 100 || most != 2 {
		t.Errorf("%d offered, %d at most in flight", src.Offered(), most)
	}
	sent, late := src.InFlight()
	if ended := src.Latency.Count(); ended != 78 || sent != 2 || late != 20 {
		t.Errorf("%d ended, %d in flight, %d late", ended, sent, late)
	}
	src.Stop(k)
	k.Run()
	// 25 ms serve two requests, and 2.5 are intended: the last of 100, intended at 1 s, waits for
	// 49 pairs.
	if got, want := src.Latency.Max(), 10*ms+50*25*ms-990*ms; src.Latency.Count() != 100 ||
		got < want || got > want+15*ms {
		t.Errorf("%d ended, the last took %v, want about %v", src.Latency.Count(), got, want)
	}
}

func TestStationsCrashAndSlowDown(t *testing.T) {
	k, r := New(), &recorder{}
	st := NewStation(2)
	for i := range uint64(5) {
		st.Submit(k, 10*ms, r, i)
	}
	k.RunUntil(15 * ms)
	st.Crash(k)
	st.Submit(k, 10*ms, r, 9)
	k.RunUntil(100 * ms)
	if s := st.Stats(k); len(r.args) != 2 || s.Dropped != 4 || s.Queue != 0 || s.Busy != 0.03 {
		t.Errorf("ended %v, stats %+v", r.args, s)
	}
	st.Restart(k)
	st.Slow(3)
	st.Submit(k, 10*ms, r, 10)
	k.Run()
	if k.Now() != 130*ms || r.args[2] != 10 {
		t.Errorf("ended %v at %v", r.args, k.Now())
	}
}
