package sim

import (
	"container/heap"
	"encoding/binary"
	"math"
	"testing"
	"time"

	"hotbed/dataplane/tests/seeds"
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
	var timers []Timer // of all events; 0 of those that cannot be cancelled
	waiting, cancelled := map[uint64]bool{}, map[uint64]bool{}
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
		delete(waiting, arg)
	}
	handler := Func(func(k *Kernel, arg uint64) { expect(arg, k.Now()) })
	for len(data) >= 4 {
		op, width, value := data[0], data[1], binary.LittleEndian.Uint16(data[2:])
		data = data[4:]
		span := time.Duration(value) << (width % 44) // from ties up to days
		switch op % 8 {
		case 0, 1, 2, 3:
			timer := Timer(0)
			if op&32 != 0 {
				k.Post(k.Now()+span, handler, seq)
			} else {
				timer = k.After(span, handler, seq)
			}
			timers, waiting[seq] = append(timers, timer), true
			heap.Push(ref, reference{{k.Now() + span, seq}})
			seq++
		case 4:
			for range width {
				if before := k.Now(); !k.step(math.MaxInt64) && k.Now() != before {
					t.Fatalf("nothing ran, and the clock went from %v to %v", before, k.Now())
				}
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
			if seq == 0 {
				break
			}
			// A recent event, which may have run or been cancelled: another may have its slot now.
			victim := seq - 1 - uint64(value)%min(seq, 1+uint64(width%16))
			waits := waiting[victim] && timers[victim] != 0
			if k.Cancel(timers[victim]) != waits {
				t.Fatalf("Cancel of event %d, which waits: %v", victim, waits)
			}
			if waits {
				cancelled[victim] = true
				delete(waiting, victim)
			}
		case 7:
			k.sweep()
		}
		if k.pending != len(waiting) {
			t.Fatalf("%d pending, want %d", k.pending, len(waiting))
		}
	}
	k.Run()
	if len(waiting) != 0 {
		t.Fatalf("%d events never ran", len(waiting))
	}
}

func FuzzQueue(f *testing.F) {
	seeds.Add(f, 300, 2400)
	f.Add([]byte{0, 0, 1, 0, 0, 0, 1, 0, 4, 2, 0, 0})
	f.Fuzz(checkQueue)
}
