// Package sim is Hotbed's event kernel: the one virtual clock of everything simulated, and the parts
// that all models share (disks, links, clients, background load, faults, random streams, latency
// histograms).
//
// It is deterministic: the same seed and the same calls give the same bits on every machine. There
// are no goroutines and no wall clock in it, events of one instant run in the order in which they
// were scheduled, and random numbers come from named streams made of integer arithmetic and of
// floating-point operations that no compiler may fuse.
package sim

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Handler is what an event calls. One object usually handles many events and tells them apart by
// arg, whose meaning is its own; scheduling an event then allocates nothing.
type Handler interface {
	Handle(k *Kernel, arg uint64)
}

// Func makes a Handler of a function. Convert it once and keep it where events are many.
type Func func(k *Kernel, arg uint64)

// Handle calls the function.
func (f Func) Handle(k *Kernel, arg uint64) { f(k, arg) }

// Timer names a scheduled event, for Cancel. The zero value names none.
type Timer uint64

// Forever is the end of virtual time, 292 years after its start.
const Forever = time.Duration(math.MaxInt64)

// Kernel is a virtual clock and the events that wait for it. It is not safe for concurrent use:
// everything in one simulation runs on one goroutine.
//
// The events wait in a monotone radix queue: buckets by the highest digit (base 16) in which an
// event's time differs from a base time that no event precedes. Scheduling appends to a bucket;
// the lowest bucket is spread over lower ones when it is reached, so that an event is moved about
// log16(pending) times, always in sequence. Events of one instant always share a bucket, hence
// appending keeps them in the order in which they were scheduled.
type Kernel struct {
	now  int64
	base int64 // no later than now and than every waiting event

	buckets [levels * digits]bucket
	used    [levels * digits / 64]uint64 // which buckets hold something

	events []event  // those that can be cancelled, by slot
	free   []uint32 // unused slots

	pending int // waiting events, without cancelled ones
	dead    int // cancelled events whose nodes still wait
	ran     uint64
	halted  bool
}

const (
	digitBits = 4
	digits    = 1 << digitBits
	levels    = 64 / digitBits
	// scanned is the size up to which a bucket is searched rather than spread.
	scanned = 12
)

// node is an event in the queue.
type node struct {
	at  int64
	arg uint64  // without a handler: the slot of an event that can be cancelled
	h   Handler // nil: look at the slot
}

// event is what the node of an event that can be cancelled calls; h is nil once it is.
type event struct {
	h   Handler
	arg uint64
	gen uint32 // counts the slot's uses, so that an old Timer names nothing
}

type bucket struct {
	nodes []node
	head  int   // first waiting node; above 0 only in buckets of a single instant
	least int64 // a lower bound of the waiting nodes' times
}

// New returns a kernel at time 0 with nothing scheduled.
func New() *Kernel { return &Kernel{} }

// Now is the virtual time since the start.
func (k *Kernel) Now() time.Duration { return time.Duration(k.now) }

// Pending is how many events wait.
func (k *Kernel) Pending() int { return k.pending }

// Events is how many events have run.
func (k *Kernel) Events() uint64 { return k.ran }

// Post schedules h.Handle(k, arg) for time t, after what is already scheduled for t, for good: it
// costs less than At, by a memory access that matters where many events wait. A time in the past is
// a mistake in a model and panics.
func (k *Kernel) Post(t time.Duration, h Handler, arg uint64) {
	k.check(t, h)
	k.pending++
	k.place(node{int64(t), arg, h})
}

func (k *Kernel) check(t time.Duration, h Handler) {
	if int64(t) < k.now {
		panic(fmt.Sprintf("sim: an event for %v was scheduled at %v", t, k.Now()))
	}
	if h == nil {
		panic("sim: an event without a handler")
	}
}

// At schedules h.Handle(k, arg) for time t, as Post does, and returns what Cancel takes it back by.
func (k *Kernel) At(t time.Duration, h Handler, arg uint64) Timer {
	k.check(t, h)
	var slot uint32
	if n := len(k.free); n > 0 {
		slot = k.free[n-1]
		k.free = k.free[:n-1]
	} else {
		slot = k.grow()
	}
	e := &k.events[slot]
	e.h, e.arg = h, arg
	k.pending++
	k.place(node{int64(t), uint64(slot), nil})
	return Timer(e.gen)<<32 | Timer(slot)
}

// After schedules h.Handle(k, arg) for d after now; d must not be negative.
func (k *Kernel) After(d time.Duration, h Handler, arg uint64) Timer {
	return k.At(time.Duration(k.now)+d, h, arg)
}

// Cancel takes a scheduled event back and says whether it was still waiting.
func (k *Kernel) Cancel(t Timer) bool {
	slot := uint32(t)
	if int(slot) >= len(k.events) {
		return false
	}
	e := &k.events[slot]
	if e.gen != uint32(t>>32) || e.h == nil {
		return false
	}
	e.h = nil
	k.pending--
	k.dead++
	if k.dead > 1024 && k.dead > k.pending {
		k.sweep()
	}
	return true
}

// Step runs the next event and says whether there was one.
func (k *Kernel) Step() bool { return k.step(math.MaxInt64) }

// RunUntil runs every event up to and including time t and leaves the clock at t, or at the event
// that called Halt.
func (k *Kernel) RunUntil(t time.Duration) {
	if int64(t) < k.now {
		panic(fmt.Sprintf("sim: asked at %v to run until %v", k.Now(), t))
	}
	k.halted = false
	for !k.halted {
		if !k.step(int64(t)) {
			k.now = int64(t)
			return
		}
	}
}

// Run runs until nothing is scheduled or an event calls Halt.
func (k *Kernel) Run() {
	k.halted = false
	for !k.halted && k.step(math.MaxInt64) {
	}
}

// Halt makes the RunUntil or Run that is under way return after the present event.
func (k *Kernel) Halt() { k.halted = true }

// step runs the next event that is not later than limit.
func (k *Kernel) step(limit int64) bool {
	for {
		n, ok := k.pop(limit)
		if !ok {
			return false
		}
		if n.h == nil {
			if n.h, n.arg = k.release(uint32(n.arg)); n.h == nil {
				k.dead--
				continue
			}
		}
		k.pending--
		k.ran++
		k.now = n.at
		n.h.Handle(k, n.arg)
		return true
	}
}

// release frees a slot and returns what was in it.
func (k *Kernel) release(slot uint32) (h Handler, arg uint64) {
	e := &k.events[slot]
	h, arg = e.h, e.arg
	e.h = nil
	e.gen++
	k.free = append(k.free, slot)
	return h, arg
}

// grow adds a slot. Generations start at 1: Timer 0 names nothing.
func (k *Kernel) grow() uint32 {
	if len(k.events) >= math.MaxUint32 {
		panic("sim: more than 4 billion events wait")
	}
	k.events = append(k.events, event{gen: 1})
	return uint32(len(k.events) - 1)
}

// place puts a node into the bucket of the highest digit in which it differs from the base.
func (k *Kernel) place(n node) {
	level := (bits.Len64(uint64(n.at^k.base)|1) - 1) / digitBits
	i := level*digits + int(n.at>>(level*digitBits))&(digits-1)
	b := &k.buckets[i]
	if len(b.nodes) == 0 {
		k.used[i/64] |= 1 << (i % 64)
		b.least = n.at
	} else if n.at < b.least {
		b.least = n.at
	}
	b.nodes = append(b.nodes, n)
}

// lowest is the first bucket that holds something, or -1.
func (k *Kernel) lowest() int {
	for w, word := range k.used {
		if word != 0 {
			return w*64 + bits.TrailingZeros64(word)
		}
	}
	return -1
}

// empty marks bucket i as holding nothing; its memory is kept for later nodes.
func (k *Kernel) empty(i int) {
	b := &k.buckets[i]
	b.nodes, b.head = b.nodes[:0], 0
	k.used[i/64] &^= 1 << (i % 64)
}

// pop takes the first node out of the queue, unless it is later than limit.
func (k *Kernel) pop(limit int64) (node, bool) {
	for {
		i := k.lowest()
		if i < 0 {
			k.base = k.now // cancelled events may have led it on
			return node{}, false
		}
		b := &k.buckets[i]
		if b.least > limit {
			return node{}, false
		}
		switch {
		case i < digits: // a single instant
			n := b.nodes[b.head]
			b.head++
			if b.head == len(b.nodes) {
				k.empty(i)
			}
			return n, true
		case len(b.nodes) <= scanned:
			return k.scan(i, limit)
		}
		k.spread(i)
	}
}

// scan takes the first of a small bucket's earliest nodes.
func (k *Kernel) scan(i int, limit int64) (node, bool) {
	b := &k.buckets[i]
	first := 0
	for j := 1; j < len(b.nodes); j++ {
		if b.nodes[j].at < b.nodes[first].at {
			first = j
		}
	}
	n := b.nodes[first]
	b.least = n.at
	if n.at > limit {
		return node{}, false
	}
	last := len(b.nodes) - 1
	if last == 0 {
		k.empty(i)
		return n, true
	}
	copy(b.nodes[first:], b.nodes[first+1:])
	b.nodes = b.nodes[:last]
	return n, true
}

// spread moves the nodes of bucket i, the lowest, to the buckets below it: seen from the bucket's
// own earliest time they all differ in a lower digit.
func (k *Kernel) spread(i int) {
	b := &k.buckets[i]
	nodes := b.nodes
	k.base = b.least
	k.empty(i)
	for _, n := range nodes {
		k.place(n)
	}
}

// sweep drops the nodes of cancelled events.
func (k *Kernel) sweep() {
	for i := range k.buckets {
		b := &k.buckets[i]
		if len(b.nodes) == 0 {
			continue
		}
		kept := b.nodes[:0]
		for _, n := range b.nodes[b.head:] {
			if n.h == nil && k.events[n.arg].h == nil {
				k.release(uint32(n.arg))
			} else {
				kept = append(kept, n)
			}
		}
		b.nodes, b.head = kept, 0
		if len(kept) == 0 {
			k.empty(i)
		}
	}
	k.dead = 0
}
