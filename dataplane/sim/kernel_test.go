package sim

import (
	"container/heap"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"hotbed/dataplane/internal/command"
)

// recorder records the arguments and times of events.
type recorder struct {
	args []uint64
	at   []time.Duration
}

func (r *recorder) Handle(k *Kernel, arg uint64) {
	r.args = append(r.args, arg)
	r.at = append(r.at, k.Now())
}

func TestCancel(t *testing.T) {
	k, r := New(), &recorder{}
	a := k.At(10, r, 1)
	b := k.At(20, r, 2)
	if !k.Cancel(a) || k.Cancel(a) || k.Cancel(0) {
		t.Fatal("an event is cancelled exactly once")
	}
	if k.pending != 1 {
		t.Fatalf("%d pending", k.pending)
	}
	k.Run()
	if len(r.args) != 1 || r.args[0] != 2 {
		t.Fatalf("ran %v", r.args)
	}
	if k.Cancel(b) {
		t.Fatal("cancelled an event that has run")
	}
	k.At(30, r, 3) // reuses the slot of a or b
	if k.Cancel(a) || k.Cancel(b) {
		t.Fatal("an old timer cancelled a new event")
	}
}

func TestCancelledEventsDoNotMoveTheClock(t *testing.T) {
	k, r := New(), &recorder{}
	timers := make([]Timer, 50)
	for i := range timers {
		timers[i] = k.At(time.Duration(i+1)<<20, r, 0)
	}
	for _, timer := range timers {
		k.Cancel(timer)
	}
	if k.step(math.MaxInt64) || k.Now() != 0 {
		t.Fatalf("ran an event, now %v", k.Now())
	}
	for i, at := range []time.Duration{30 << 20, 5, 1 << 20, 2} {
		k.At(at, r, uint64(i))
	}
	k.Run()
	want := []uint64{3, 1, 2, 0}
	for i := range want {
		if r.args[i] != want[i] {
			t.Fatalf("ran in order %v, want %v", r.args, want)
		}
	}
}

func TestCancelledEventsAreForgotten(t *testing.T) {
	k, r := New(), &recorder{}
	for range 1000 {
		timers := make([]Timer, 100)
		for i := range timers {
			timers[i] = k.After(time.Hour+time.Duration(i), r, 0)
		}
		for _, timer := range timers {
			k.Cancel(timer)
		}
	}
	if len(k.events) > 3000 {
		t.Errorf("100000 cancelled timeouts keep %d slots", len(k.events))
	}
	k.Run()
	if len(r.args) != 0 {
		t.Errorf("%d cancelled events ran", len(r.args))
	}
}

func TestHaltReturnsAtTheEvent(t *testing.T) {
	k := New()
	k.At(5, Func(func(k *Kernel, _ uint64) { k.Halt() }), 0)
	k.At(6, Func(func(*Kernel, uint64) { t.Error("ran on after Halt") }), 0)
	k.RunUntil(10)
	if k.Now() != 5 {
		t.Errorf("now %v, want 5", k.Now())
	}
}

func TestAnEventInThePastPanics(t *testing.T) {
	k := New()
	k.RunUntil(100)
	for name, mistake := range map[string]func(){
		"At":       func() { k.At(99, &recorder{}, 0) },
		"After":    func() { k.After(-1, &recorder{}, 0) },
		"overflow": func() { k.After(Forever, &recorder{}, 0) },
		"handler":  func() { k.After(1, nil, 0) },
		"Post":     func() { k.Post(99, &recorder{}, 0) },
		"RunUntil": func() { k.RunUntil(99) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", name)
				}
			}()
			mistake()
		}()
	}
}

// reference is the plain queue for comparison with the kernel: a binary heap by time and number.
type reference []struct {
	at  time.Duration
	seq uint64
}

func (r reference) Len() int { return len(r) }
func (r reference) Less(i, j int) bool {
	return r[i].at < r[j].at || r[i].at == r[j].at && r[i].seq < r[j].seq
}
func (r reference) Swap(i, j int) { r[i], r[j] = r[j], r[i] }
func (r *reference) Push(x any)   { *r = append(*r, x.(reference)[0]) }
func (r *reference) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

// checkQueue interprets data as a program of scheduling, cancelling, stepping and running, and
// compares every event with the reference.
func checkQueue(t *testing.T, data []byte) {
	k, ref := New(), &reference{}
	timers := map[uint64]Timer{}
	cancelled := map[uint64]bool{}
	var seq uint64
	expect := func(arg uint64, now time.Duration) {
		for ref.Len() > 0 && cancelled[(*ref)[0].seq] {
			heap.Pop(ref)
		}
		if ref.Len() == 0 {
			t.Fatalf("event %d ran, nothing was to", arg)
		}
		first := (*ref)[0]
		heap.Pop(ref)
		if first.seq != arg || first.at != now {
			t.Fatalf("event %d ran at %d, want event %d at %d", arg, now, first.seq, first.at)
		}
		delete(timers, arg)
	}
	handler := Func(func(k *Kernel, arg uint64) { expect(arg, k.Now()) })
	for len(data) >= 4 {
		op, width, value := data[0], data[1], binary.LittleEndian.Uint16(data[2:])
		data = data[4:]
		span := time.Duration(value) << (width % 44) // from ties up to days
		switch op % 8 {
		case 0, 1, 2, 3:
			if timers[seq] = 0; op&32 != 0 {
				k.Post(k.Now()+span, handler, seq) // Timer 0 cancels nothing
			} else {
				timers[seq] = k.After(span, handler, seq)
			}
			heap.Push(ref, reference{{k.Now() + span, seq}})
			seq++
		case 4:
			for range width {
				k.step(math.MaxInt64)
			}
		case 5:
			until := k.Now() + span
			k.RunUntil(until)
			if k.Now() != until {
				t.Fatalf("stopped at %v, not %v", k.Now(), until)
			}
			for ref.Len() > 0 && cancelled[(*ref)[0].seq] {
				heap.Pop(ref)
			}
			if ref.Len() > 0 && (*ref)[0].at <= until {
				t.Fatalf("an event of %v waits at %v", (*ref)[0].at, until)
			}
		case 6:
			victim := uint64(value) % (seq + 1)
			timer := timers[victim]
			waits := timer != 0
			if k.Cancel(timer) != waits {
				t.Fatalf("Cancel of event %d, which waits: %v", victim, waits)
			}
			if waits {
				cancelled[victim] = true
				delete(timers, victim)
			}
		case 7:
			k.sweep()
		}
		if k.pending != len(timers) {
			t.Fatalf("%d pending, want %d", k.pending, len(timers))
		}
	}
	k.Run()
	if len(timers) != 0 {
		t.Fatalf("%d events never ran", len(timers))
	}
}

func FuzzQueue(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 0, 0, 1, 0, 4, 2, 0, 0})
	f.Fuzz(checkQueue)
}

func TestQueueProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		data := make([]byte, 4*rng.IntN(600))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		checkQueue(t, data)
	}
}

// hold keeps n events pending and reschedules each with an exponential-like delay: the standard
// hold model for event queues.
type hold struct{ delays []time.Duration }

func (h *hold) Handle(k *Kernel, arg uint64) {
	k.Post(k.Now()+h.delays[arg%uint64(len(h.delays))], h, arg*6364136223846793005+1442695040888963407)
}

func benchmarkHold(b *testing.B, n int) {
	rng := rand.New(rand.NewPCG(1, 2))
	h := &hold{delays: make([]time.Duration, 1<<12-1)}
	for i := range h.delays {
		h.delays[i] = time.Duration(rng.ExpFloat64() * 1e6 * float64(n))
	}
	k := New()
	for range n {
		k.Post(h.delays[rng.IntN(len(h.delays))], h, rng.Uint64())
	}
	for range 2 * n { // to the steady state
		k.step(math.MaxInt64)
	}
	b.ReportAllocs()
	b.ResetTimer()
	used := command.ProcessorTime()
	for range b.N {
		k.step(math.MaxInt64)
	}
	// Processor time is not affected by other processes.
	b.ReportMetric(float64(b.N)/(command.ProcessorTime()-used).Seconds()/1e6, "Mevents/cpu-s")
}

func BenchmarkHold10(b *testing.B)      { benchmarkHold(b, 10) }
func BenchmarkHold1000(b *testing.B)    { benchmarkHold(b, 1000) }
func BenchmarkHold100000(b *testing.B)  { benchmarkHold(b, 100000) }
func BenchmarkHold1000000(b *testing.B) { benchmarkHold(b, 1000000) }
