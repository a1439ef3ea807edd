package nfssim

import (
	"errors"
	"fmt"
	"math"
	"time"

	"hotbed/dataplane/enforcer"
	"hotbed/dataplane/estimator"
	"hotbed/dataplane/internal/traces"
	"hotbed/dataplane/sim"
)

// hop is a link on a workload's way, and the workload's flow on the link.
type hop struct {
	link *queue
	flow int
}

// client replays a trace: open loop, every request at its own time independent of replies (5.1), or
// closed loop, with as many requests in flight as its workload says.
type client struct {
	spec    Workload
	trace   traces.Trace
	feed    *traces.Feed
	in, out []hop
	device  *device
	flow    int
	charge  *estimator.Estimator
	real    *estimator.Estimator
	network estimator.NetworkCost
	until   time.Duration // no arrivals from then on
	length  time.Duration // of its replay, as far as known in advance
	half    time.Duration

	flying   int
	most     int
	issued   int64
	lastSent time.Duration
	lastEnd  time.Duration
	tally    tally
}

// request is a request from its arrival to its reply.
type request struct {
	enforcer.Request // at the device
	client           *client
	arrived          time.Duration
	entered          time.Duration // its present stage
	out              bool          // the reply is on its way
	read             bool
	offset, size     int64
	real             float64 // seconds that the device takes
	next             *request
}

// frame is a piece of a request's message or of its reply.
type frame struct {
	enforcer.Request
	of   *request
	hop  int
	last bool
	next *frame
}

// run is a simulation in progress.
type run struct {
	scenario Scenario
	kernel   *sim.Kernel
	devices  []*device
	links    []*queue
	clients  []*client
	frame    float64
	freeR    *request
	freeF    *frame
	err      error
}

var errOffset = errors.New("the profile of its device needs offsets, and its trace has none: use a " +
	"profile by size")

// fail ends the simulation.
func (s *run) fail(c *client, err error) {
	if s.err == nil {
		s.err = fmt.Errorf("workload %s: %w", c.spec.Name, err)
	}
	s.kernel.Halt()
}

// arrival handles the open-loop clients' arrivals; its argument is the client.
type arrival run

func (e *arrival) Handle(k *sim.Kernel, arg uint64) {
	s := (*run)(e)
	c := s.clients[arg]
	for {
		r, more := c.feed.Peek()
		if !more {
			if err := c.feed.Err(); err != nil {
				s.fail(c, err)
			}
			return
		}
		if r.At > k.Now() {
			if r.At < c.until {
				k.Post(r.At, e, arg)
			}
			return
		}
		if r.At >= c.until {
			return
		}
		c.feed.Skip()
		s.issue(k, c, r)
	}
}

// refill keeps a closed-loop client's requests in flight.
func (s *run) refill(k *sim.Kernel, c *client) {
	for c.flying < c.spec.Closed && k.Now() < c.until {
		r, more := c.feed.Peek()
		if !more {
			if err := c.feed.Err(); err != nil {
				s.fail(c, err)
			}
			return
		}
		c.feed.Skip()
		if !s.issue(k, c, r) {
			return
		}
	}
}

// issue sends a request and returns false if it failed.
func (s *run) issue(k *sim.Kernel, c *client, t traces.Request) bool {
	if t.Offset < 0 && c.device.needsOffsets() {
		s.fail(c, errOffset)
		return false
	}
	r := s.freeR
	if r == nil {
		r = &request{}
		r.Data = r
	} else {
		s.freeR = r.next
	}
	r.client, r.arrived, r.entered, r.out = c, k.Now(), k.Now(), false
	r.read, r.offset, r.size = t.Read, t.Offset, t.Size
	c.issued++
	c.lastSent = k.Now()
	c.flying++
	c.most = max(c.most, c.flying)
	if len(c.in) > 0 {
		s.send(k, r, c.in, c.network.In(r.read, r.size))
	} else {
		s.reach(k, r)
	}
	return true
}

// send puts a message on its first link, frame by frame.
func (s *run) send(k *sim.Kernel, r *request, way []hop, bytes float64) {
	first := way[0]
	for left := bytes; ; {
		n := math.Min(left, s.frame)
		left -= n
		f := s.freeF
		if f == nil {
			f = &frame{}
			f.Data = f
		} else {
			s.freeF = f.next
		}
		f.of, f.hop, f.last = r, 0, left <= 0
		f.Workload, f.Cost = first.flow, n
		first.link.add(k, &f.Request)
		if f.last {
			break
		}
	}
	first.link.pump(k)
}

// onward is called when a frame has crossed a link: a link forwards only complete frames.
func (s *run) onward(k *sim.Kernel, q *enforcer.Request, _ time.Duration) {
	f := q.Data.(*frame)
	r := f.of
	way := r.client.in
	if r.out {
		way = r.client.out
	}
	if f.hop++; f.hop < len(way) {
		f.Workload = way[f.hop].flow
		way[f.hop].link.arrive(k, &f.Request)
		return
	}
	last := f.last
	f.of, f.next = nil, s.freeF
	s.freeF = f
	switch {
	case !last:
	case r.out:
		s.answered(k, r)
	default:
		s.reach(k, r)
	}
}

// reach is called when a whole request has arrived at its server.
func (s *run) reach(k *sim.Kernel, r *request) {
	c, now := r.client, k.Now()
	if len(c.in) > 0 {
		c.tally.in.Add(now - r.entered)
		r.entered = now
	}
	r.Workload = c.flow
	c.device.charge(r)
	c.device.arrive(k, &r.Request)
}

// served is called when a device has served a request.
func (s *run) served(k *sim.Kernel, q *enforcer.Request, took time.Duration) {
	r := q.Data.(*request)
	c, now := r.client, k.Now()
	c.tally.storage.Add(now - r.entered)
	c.tally.wait.Add(now - took - r.entered)
	c.tally.service.Add(took)
	if len(c.out) == 0 {
		s.answered(k, r)
		return
	}
	r.entered, r.out = now, true
	s.send(k, r, c.out, c.network.Out(r.read, r.size))
}

// answered is called when a whole reply has arrived at the client.
func (s *run) answered(k *sim.Kernel, r *request) {
	c, now := r.client, k.Now()
	if len(c.out) > 0 {
		c.tally.out.Add(now - r.entered)
	}
	second := r.arrived >= c.half
	if c.spec.Closed > 0 {
		second = now >= c.half
	}
	c.tally.add(r.read, second, r.arrived, now-r.arrived, r.size)
	c.lastEnd = now
	c.flying--
	r.client, r.next = nil, s.freeR
	s.freeR = r
	if c.spec.Closed > 0 {
		s.refill(k, c)
	}
}
