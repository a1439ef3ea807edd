package sim

import (
	"fmt"
	"time"
)

// Station is a first-come-first-served queue with one or more equal servers: a processor, or a
// daemon's threads. The submitter of a job sets its service time.
type Station struct {
	waiting ring[job]
	serving []serving // by server
	idle    []uint32
	slow    float64
	down    bool

	jobs    Occupancy // jobs in the station
	busy    Occupancy // busy servers
	count   int64
	wait    time.Duration
	dropped int64
}

type job struct {
	at      time.Duration
	service time.Duration
	h       Handler
	arg     uint64
}

type serving struct {
	h     Handler
	arg   uint64
	timer Timer
}

// NewStation returns an idle station.
func NewStation(servers int) *Station {
	if servers < 1 {
		panic(fmt.Sprintf("sim: a station with %d servers", servers))
	}
	s := &Station{serving: make([]serving, servers), slow: 1}
	for i := servers; i > 0; i-- {
		s.idle = append(s.idle, uint32(i-1))
	}
	return s
}

// Submit queues a job and calls h.Handle(k, arg) after its service. A station that is down drops
// the job.
func (s *Station) Submit(k *Kernel, service time.Duration, h Handler, arg uint64) {
	if service < 0 {
		panic(fmt.Sprintf("sim: a service time of %v", service))
	}
	if s.down {
		s.dropped++
		return
	}
	now := k.Now()
	s.jobs.Add(now, 1)
	if len(s.idle) == 0 {
		s.waiting.push(job{now, service, h, arg})
		return
	}
	server := s.idle[len(s.idle)-1]
	s.idle = s.idle[:len(s.idle)-1]
	s.busy.Add(now, 1)
	s.serve(k, server, service, h, arg)
}

func (s *Station) serve(k *Kernel, server uint32, service time.Duration, h Handler, arg uint64) {
	if s.slow != 1 {
		service = nanoseconds(float64(service) * s.slow)
	}
	s.count++
	timer := k.After(service, (*stationEnd)(s), uint64(server))
	s.serving[server] = serving{h, arg, timer}
}

// stationEnd handles the end of a service; its argument is the server.
type stationEnd Station

func (e *stationEnd) Handle(k *Kernel, server uint64) {
	s := (*Station)(e)
	now := k.Now()
	done := s.serving[server]
	s.jobs.Add(now, -1)
	if s.waiting.n > 0 {
		next := s.waiting.pop()
		s.wait += now - next.at
		s.serve(k, uint32(server), next.service, next.h, next.arg)
	} else {
		s.serving[server] = serving{}
		s.idle = append(s.idle, uint32(server))
		s.busy.Add(now, -1)
	}
	done.h.Handle(k, done.arg)
}

// Slow multiplies the service times of jobs that begin later; 1 is the healthy station.
func (s *Station) Slow(factor float64) {
	if !(factor > 0) {
		panic(fmt.Sprintf("sim: a slow factor of %g", factor))
	}
	s.slow = factor
}

// Crash drops every job without calling its handler; new jobs are dropped until Restart.
func (s *Station) Crash(k *Kernel) {
	now := k.Now()
	s.idle = s.idle[:0]
	for i := len(s.serving); i > 0; i-- {
		k.Cancel(s.serving[i-1].timer)
		s.serving[i-1] = serving{}
		s.idle = append(s.idle, uint32(i-1))
	}
	s.dropped += int64(s.jobs.Count())
	s.jobs.Add(now, -s.jobs.Count())
	s.busy.Add(now, -s.busy.Count())
	s.waiting.clear()
	s.down = true
}

// Restart makes a crashed station serve again.
func (s *Station) Restart(*Kernel) { s.down = false }

// StationStats holds a station's counters since its start.
type StationStats struct {
	Begun   int64         // services begun
	Dropped int64         // jobs lost in crashes
	Wait    time.Duration // sum over services of start - arrival
	Queue   int           // jobs in the station, including those in service
	Area    float64       // integral of Queue, in seconds
	Busy    float64       // integral of busy servers, in seconds
}

// Stats returns the current counters.
func (s *Station) Stats(k *Kernel) StationStats {
	return StationStats{
		Begun: s.count, Dropped: s.dropped, Wait: s.wait, Queue: s.jobs.Count(),
		Area: s.jobs.Area(k.Now()), Busy: s.busy.Area(k.Now()),
	}
}

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
