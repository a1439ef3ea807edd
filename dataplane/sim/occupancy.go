package sim

import "time"

// Occupancy counts present items (waiting tasks, requests in a queue) and integrates the count over
// virtual time. The zero value counts nothing, starting at time 0.
type Occupancy struct {
	// Parent receives every change too: a node's occupancy is the sum over its processes.
	Parent *Occupancy

	n     int
	since time.Duration
	some  time.Duration
	area  float64 // nanoseconds; integers are exact up to 2^53, 104 days
}

// Add changes the count by delta at time now; the count must not fall below 0.
func (o *Occupancy) Add(now time.Duration, delta int) {
	for ; o != nil; o = o.Parent {
		o.settle(now)
		o.n += delta
		if o.n < 0 {
			panic("sim: an occupancy below 0")
		}
	}
}

func (o *Occupancy) settle(now time.Duration) {
	if o.n > 0 {
		o.some += now - o.since
		o.area += float64(float64(now-o.since) * float64(o.n))
	}
	o.since = now
}

// Count returns the current count.
func (o *Occupancy) Count() int { return o.n }

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
