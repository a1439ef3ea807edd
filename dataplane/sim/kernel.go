// Package sim is Hotbed's event kernel: the single virtual clock of all simulations, and the parts
// that all models share (disks, links, clients, background load, faults, random streams, latency
// histograms).
//
// It is deterministic: the same seed and the same calls give the same bits on every machine. It has
// no goroutines and no wall clock. Events of one instant run in the order of scheduling. Random
// numbers come from named streams of integer arithmetic and floating-point operations that no
// compiler may fuse.
package sim

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Handler handles events. One object usually handles many events and distinguishes them by arg,
// which has a meaning only to the handler. So scheduling an event allocates nothing.
type Handler interface {
	Handle(k *Kernel, arg uint64)
}

// Func turns a function into a Handler. Convert it once and reuse it for many events.
type Func func(k *Kernel, arg uint64)

// Handle calls the function.
func (f Func) Handle(k *Kernel, arg uint64) { f(k, arg) }

// Timer identifies a scheduled event, for Cancel. The zero value identifies none.
type Timer uint64

// Forever is the end of virtual time, 292 years after its start.
const Forever = time.Duration(math.MaxInt64)

// Kernel is a virtual clock with its waiting events. It is not safe for concurrent use: a
// simulation runs on one goroutine.
//
// Events wait in a monotone radix queue: buckets by the highest digit (base 16) in which an event's
// time differs from a base time that no event precedes. Scheduling appends to a bucket. When the
// lowest bucket is reached, it is spread over lower buckets. An event thus moves about
// log16(pending) times, always in sequence. Events of one instant always share a bucket, so
// appending preserves their order.
type Kernel struct {
	now  int64
	base int64 // not after now or any waiting event

	buckets [levels * digits]bucket
	used    [levels * digits / 64]uint64 // non-empty buckets

	events []event  // cancellable events, by slot
	free   []uint32 // unused slots

	pending int // waiting events, not counting cancelled ones
	dead    int // cancelled events with waiting nodes
	ran     uint64
	halted  bool
}

const (
	digitBits = 4
	digits    = 1 << digitBits
	levels    = 64 / digitBits
	// scanned is the maximum size of a bucket that is searched rather than spread.
	scanned = 12
)

// node is an event in the queue.
type node struct {
	at  int64
	arg uint64  // without a handler: the slot of a cancellable event
	h   Handler // nil: look at the slot
}

// event is the target of a cancellable event's node; h is nil once cancelled.
type event struct {
	h   Handler
	arg uint64
	gen uint32 // counts the slot's uses, to invalidate old Timers
}

type bucket struct {
	nodes []node
	head  int   // first waiting node; above 0 only in buckets of a single instant
	least int64 // a lower bound of the waiting nodes' times
}

// New returns a kernel at time 0 with nothing scheduled.
func New() *Kernel { return &Kernel{} }

// Now returns the virtual time since the start.
func (k *Kernel) Now() time.Duration { return time.Duration(k.now) }

// Events returns the number of events run.
func (k *Kernel) Events() uint64 { return k.ran }

// Post schedules h.Handle(k, arg) for time t, after all events already scheduled for t. It cannot
// be cancelled, but saves a memory access that matters with many waiting events. A time in the past
// is a model error and panics.
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

// At schedules h.Handle(k, arg) for time t, like Post, and returns a Timer for Cancel.
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

// Cancel cancels a scheduled event and reports whether it was still waiting.
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

// Halt makes the current RunUntil or Run return after the current event.
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

// release frees a slot and returns its contents.
func (k *Kernel) release(slot uint32) (h Handler, arg uint64) {
	e := &k.events[slot]
	h, arg = e.h, e.arg
	e.h = nil
	e.gen++
	k.free = append(k.free, slot)
	return h, arg
}

// grow adds a slot. Generations start at 1, so Timer 0 is never valid.
func (k *Kernel) grow() uint32 {
	if len(k.events) >= math.MaxUint32 {
		panic("sim: more than 4 billion events wait")
	}
	k.events = append(k.events, event{gen: 1})
	return uint32(len(k.events) - 1)
}

// place puts a node into the bucket of the highest digit that differs from the base.
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

// lowest returns the first non-empty bucket, or -1.
func (k *Kernel) lowest() int {
	for w, word := range k.used {
		if word != 0 {
			return w*64 + bits.TrailingZeros64(word)
		}
	}
	return -1
}

// empty marks bucket i as empty; its memory is kept for later nodes.
func (k *Kernel) empty(i int) {
	b := &k.buckets[i]
	b.nodes, b.head = b.nodes[:0], 0
	k.used[i/64] &^= 1 << (i % 64)
}

// pop removes the first node from the queue, unless it is later than limit.
func (k *Kernel) pop(limit int64) (node, bool) {
	for {
		i := k.lowest()
		if i < 0 {
			k.base = k.now // cancelled events may have advanced it
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

// scan removes the first of a small bucket's earliest nodes.
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

// spread moves the nodes of bucket i, the lowest, to lower buckets: relative to the bucket's
// earliest time they all differ in a lower digit.
func (k *Kernel) spread(i int) {
	b := &k.buckets[i]
	nodes := b.nodes
	k.base = b.least
	k.empty(i)
	for _, n := range nodes {
		k.place(n)
	}
}

// sweep removes the nodes of cancelled events.
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
