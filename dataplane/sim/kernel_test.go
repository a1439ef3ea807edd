package sim

import (
	"encoding/binary"
	"math"
	"slices"
	"sort"
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

// waits is a waiting event of the plain queue with which the kernel is compared: a sorted list.
type waits struct {
	at  time.Duration
	arg uint64
}

// checkQueue interprets data as a program of scheduling, cancelling, stepping and running, and
// compares every event with the plain queue.
func checkQueue(t *testing.T, data []byte) {
	k := New()
	var plain []waits
	var timers []Timer // of all events; 0 of those that cannot be cancelled
	handler := Func(func(k *Kernel, arg uint64) {
		if len(plain) == 0 || plain[0] != (waits{k.Now(), arg}) {
			t.Fatalf("event %d ran at %d, and there wait %v", arg, k.Now(), plain)
		}
		plain = plain[1:]
	})
	for len(data) >= 4 {
		op, width, value := data[0], data[1], binary.LittleEndian.Uint16(data[2:])
		data = data[4:]
		span := time.Duration(value) << (width % 44) // from ties up to days
		switch op % 8 {
		case 0, 1, 2, 3:
			e := waits{k.Now() + span, uint64(len(timers))}
			if op&32 != 0 {
				k.Post(e.at, handler, e.arg)
				timers = append(timers, 0)
			} else {
				timers = append(timers, k.After(span, handler, e.arg))
			}
			later := sort.Search(len(plain), func(i int) bool { return plain[i].at > e.at })
			plain = slices.Insert(plain, later, e)
		case 4:
			for range width {
				if before := k.Now(); !k.step(math.MaxInt64) && k.Now() != before {
					t.Fatalf("nothing ran, and the clock went from %v to %v", before, k.Now())
				}
			}
		case 5:
			until := k.Now() + span
			k.RunUntil(until)
			if k.Now() != until || len(plain) > 0 && plain[0].at <= until {
				t.Fatalf("run until %v, it stopped at %v, and there wait %v", until, k.Now(), plain)
			}
		case 6:
			if len(timers) == 0 {
				break
			}
			// A recent event, which may have run or been cancelled: another may have its slot now.
			victim := len(timers) - 1 - int(value)%min(len(timers), 1+int(width%16))
			at := slices.IndexFunc(plain, func(e waits) bool { return e.arg == uint64(victim) && timers[victim] != 0 })
			if k.Cancel(timers[victim]) != (at >= 0) {
				t.Fatalf("Cancel of event %d, and there wait %v", victim, plain)
			}
			if at >= 0 {
				plain = slices.Delete(plain, at, at+1)
			}
		case 7:
			k.sweep()
		}
		if k.pending != len(plain) {
			t.Fatalf("%d pending, want %d", k.pending, len(plain))
		}
	}
	k.Run()
	if len(plain) != 0 {
		t.Fatalf("%d events never ran", len(plain))
	}
}

func FuzzQueue(f *testing.F) {
	seeds.Add(f, 300, 2400)
	f.Add([]byte{0, 0, 1, 0, 0, 0, 1, 0, 4, 2, 0, 0})
	f.Fuzz(checkQueue)
}
