package sim

import "time"

// Occupancy counts what is present (tasks that wait, requests in a queue) and integrates it over
// virtual time. The zero value counts nothing, from time 0 on.
type Occupancy struct {
	// Parent is told of every change too: a node's occupancy is that of all its processes.
	Parent *Occupancy

	n     int
	since time.Duration
	some  time.Duration
	area  float64 // nanoseconds; whole numbers of them are exact up to 2^53, 104 days
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

// Count is how many are present.
func (o *Occupancy) Count() int { return o.n }

// Some is for how long, up to time now, at least one was present: the "some" of pressure stall
// information if what is counted is tasks that wait.
func (o *Occupancy) Some(now time.Duration) time.Duration {
	o.settle(now)
	return o.some
}

// Area is the integral of the count up to time now, in seconds. Divided by the time it is the mean
// count.
func (o *Occupancy) Area(now time.Duration) float64 {
	o.settle(now)
	return o.area / 1e9
}
