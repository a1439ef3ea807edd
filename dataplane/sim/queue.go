package sim

import "time"

// ring is a first-in-first-out queue in one slice with reused memory.
type ring[T any] struct {
	items []T // length is a power of two
	head  int
	n     int
}

func (r *ring[T]) push(item T) {
	if r.n == len(r.items) {
		r.grow()
	}
	r.items[(r.head+r.n)&(len(r.items)-1)] = item
	r.n++
}

// first returns the oldest item, to read or change in place; the ring must not be empty.
func (r *ring[T]) first() *T { return &r.items[r.head] }

func (r *ring[T]) pop() T {
	var none T
	item := r.items[r.head]
	r.items[r.head] = none // let the item be collected
	r.head = (r.head + 1) & (len(r.items) - 1)
	r.n--
	return item
}

func (r *ring[T]) clear() {
	clear(r.items)
	r.head, r.n = 0, 0
}

func (r *ring[T]) grow() {
	items := make([]T, max(4, 2*len(r.items)))
	n := copy(items, r.items[r.head:])
	copy(items[n:], r.items[:r.head])
	r.items, r.head = items, 0
}

// Occupancy counts present items (waiting tasks, requests in a queue) and integrates the count over
// virtual time. The zero value counts nothing, starting at time 0.
type Occupancy struct {
	n     int
	since time.Duration
	some  time.Duration
	area  float64 // nanoseconds; integers are exact up to 2^53, 104 days
}

// Add changes the count by delta at time now; the count must not fall below 0.
func (o *Occupancy) Add(now time.Duration, delta int) {
	if o == nil {
		return
	}
	o.settle(now)
	if o.n += delta; o.n < 0 {
		panic("sim: an occupancy below 0")
	}
}

func (o *Occupancy) settle(now time.Duration) {
	if o.n > 0 {
		o.some += now - o.since
		o.area += float64(float64(now-o.since) * float64(o.n))
	}
	o.since = now
}

// Some returns the time up to now with a count of at least one: the "some" of pressure stall
// information if waiting tasks are counted.
func (o *Occupancy) Some(now time.Duration) time.Duration {
	o.settle(now)
	return o.some
}

// Area returns the integral of the count up to time now, in seconds. Divided by the time it is the
// mean count.
func (o *Occupancy) Area(now time.Duration) float64 {
	o.settle(now)
	return o.area / 1e9
}
