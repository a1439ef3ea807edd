// Package enforcer decides which waiting request a storage server serves next. It contains the
// storage enforcer of PriorityMeister (Zhu et al., SoCC 2014, sections 3.1 and 4.5), the policies
// that the paper compares with it (5.3), and mClock, behind one interface.
//
// The package has no clock and does no I/O. The NFS proxy drives it on the wall clock, a simulator
// on virtual time, with the same code. Requests of a workload are served in arrival order; a policy
// chooses among workloads.
//
//	e, err := enforcer.New(parameters)
//	e.Arrive(now, request)
//	for {
//		request, wake := e.Next(now) // nil: ask again at wake, or after the next Arrive or Done
//		...
//	}
//	e.Done(now, request)
package enforcer

import (
	"fmt"
	"math"
	"time"
)

// Forever is a time that is never reached.
const Forever = time.Duration(math.MaxInt64)

// Request is one request. Its owner must not move it between Arrive and Done or Remove; afterwards
// it may be reused.
type Request struct {
	// Workload is the index of its workload in the parameters at the time of Arrive.
	Workload int
	// Cost is the estimated work: seconds of the device.
	Cost float64
	// Data is for the owner's use.
	Data any

	flow       *flow
	next, prev *Request
	arrived    time.Duration
	eligible   time.Duration // see Service
	turn       time.Duration // earliest time that it, or a request waiting with it, was eligible
	order      uint64        // counts arrivals
	state      state
	inProfile  bool    // pm: it had tokens
	virtual    float64 // ps: virtual time of its arrival
	tags       tags    // mclock
}

type state uint8

const (
	idle state = iota
	waiting
	outstanding
)

// Arrived returns the arrival time.
func (r *Request) Arrived() time.Duration { return r.arrived }

// flow is the queue of a workload, with the policies' state.
type flow struct {
	spec       Workload
	index      int // in the parameters, -1 for a removed workload with remaining requests
	head, tail *Request
	stats      WorkloadStats

	shaper shaper // pm
	share  shareState
	mclock mclockState
}

// policy chooses among flows. It never chooses a flow without waiting requests.
type policy interface {
	// arrived is called when r has been appended to f.
	arrived(now time.Duration, f *flow, r *Request)
	// pick returns the flow with the first request to serve now, or none and the time to retry.
	pick(now time.Duration) (*flow, time.Duration)
	// eligible returns the time since when a servable request has been waiting.
	eligible(now time.Duration) time.Duration
	// dispatched is called after r, the first of f, was removed from the queue.
	dispatched(now time.Duration, f *flow, r *Request)
	// removed is called before r is removed from f without service.
	removed(now time.Duration, f *flow, r *Request)
	// done is called after r was served.
	done(now time.Duration, f *flow, r *Request)
	// adopt takes the current flows and parameters. If `same` is true, the flows' states belong to
	// this kind of policy and are kept.
	adopt(now time.Duration, e *Enforcer, same bool)
}

// Enforcer queues requests by workload and dispatches at most Depth at a time. It is not safe for
// concurrent use. Times are durations since the caller's epoch and never decrease.
type Enforcer struct {
	parameters  Parameters
	flows       []*flow // the parameters' flows in order, then removed ones
	policy      policy
	now         time.Duration
	queued      int
	outstanding int
	order       uint64
	service     Service
}

// New returns an enforcer with an empty queue; the error is one sentence about the invalid
// parameters.
func New(p Parameters) (*Enforcer, error) {
	e := &Enforcer{}
	if err := e.SetParameters(0, p); err != nil {
		return nil, err
	}
	return e, nil
}

// Parameters returns the current parameters.
func (e *Enforcer) Parameters() Parameters { return e.parameters }

// Queued returns the number of waiting requests.
func (e *Enforcer) Queued() int { return e.queued }

// Outstanding returns the number of requests dispatched but not done.
func (e *Enforcer) Outstanding() int { return e.outstanding }

// SetParameters changes the parameters at time now. Waiting requests stay in their workload's queue
// by name; those of a removed workload become best effort. On an error nothing changes.
//
// pm: buckets keep their contents (see shaper.setPairs). ps, cake: tags of waiting requests follow
// the new weights; weights adapted by cake stay unless the workload's own weight changed. mclock:
// waiting requests get new tags after the last served request. A new policy starts with the waiting
// requests, as if all had arrived at once.
func (e *Enforcer) SetParameters(now time.Duration, p Parameters) error {
	p, err := p.checked()
	if err != nil {
		return err
	}
	now = e.clock(now)
	old := map[string]*flow{}
	for _, f := range e.flows {
		old[f.spec.Name] = f
	}
	var flows []*flow
	for i, spec := range p.Workloads {
		f := old[spec.Name]
		if f == nil {
			f = &flow{}
		}
		delete(old, spec.Name)
		f.index, f.spec = i, spec
		flows = append(flows, f)
	}
	for _, f := range e.flows { // in order: a map has none
		if old[f.spec.Name] == f && f.stats.Queued+f.stats.Outstanding > 0 {
			f.index, f.spec = -1, Workload{Name: f.spec.Name, BestEffort: true, Weight: f.spec.Weight}
			flows = append(flows, f)
		}
	}
	same := e.policy != nil && family[e.parameters.Policy] == family[p.Policy]
	if !same {
		e.policy = policies[p.Policy]()
	}
	e.parameters, e.flows = p, flows
	e.service.restart()
	e.policy.adopt(now, e, same)
	return nil
}

// earliest returns the earliest arrival of all first requests.
func earliest(flows []*flow) time.Duration {
	since := Forever
	for _, f := range flows {
		if f.head != nil {
			since = min(since, f.head.arrived)
		}
	}
	return since
}

// clock keeps time from going back.
func (e *Enforcer) clock(now time.Duration) time.Duration {
	e.now = max(e.now, now)
	return e.now
}

// Arrive queues a request.
func (e *Enforcer) Arrive(now time.Duration, r *Request) {
	if r.state != idle {
		panic("enforcer: a request arrived that is still queued or outstanding")
	}
	if r.Workload < 0 || r.Workload >= len(e.parameters.Workloads) {
		panic(fmt.Sprintf("enforcer: a request of workload %d of %d", r.Workload,
			len(e.parameters.Workloads)))
	}
	if !(r.Cost >= 0) || math.IsInf(r.Cost, 1) {
		panic(fmt.Sprintf("enforcer: a request that costs %g", r.Cost))
	}
	f := e.flows[r.Workload]
	r.flow, r.arrived, r.order = f, e.clock(now), e.order
	r.eligible = r.arrived
	r.state, r.inProfile, r.tags = waiting, false, tags{}
	e.order++
	r.next, r.prev = nil, f.tail
	if f.tail == nil {
		f.head = r
	} else {
		f.tail.next = r
	}
	f.tail = r
	e.queued++
	f.stats.Queued++
	f.stats.Arrived++
	e.policy.arrived(r.arrived, f, r)
}

// Next dispatches the next request of the policy. If there is none, it returns nil and the time to
// retry unless a request arrives or is done before; Forever if only an arrival or end can help.
func (e *Enforcer) Next(now time.Duration) (*Request, time.Duration) {
	if e.queued == 0 || (e.parameters.Depth > 0 && e.outstanding >= e.parameters.Depth) {
		return nil, Forever
	}
	now = e.clock(now)
	f, wake := e.policy.pick(now)
	if f == nil {
		return nil, max(wake, now+1)
	}
	r := f.head
	r.turn = r.eligible
	if r.turn > e.service.last { // the server was idle: since when was its idling avoidable?
		r.turn = min(r.turn, e.policy.eligible(now))
	}
	e.unlink(f, r)
	r.state = outstanding
	e.outstanding++
	f.stats.Outstanding++
	f.stats.Dispatched++
	f.stats.Work += r.Cost
	f.stats.Waited += now - r.arrived
	e.policy.dispatched(now, f, r)
	return r, now
}

// Done records that an outstanding request was served.
func (e *Enforcer) Done(now time.Duration, r *Request) {
	if r.state != outstanding {
		panic("enforcer: a request was done that is not outstanding")
	}
	now = e.clock(now)
	f := r.flow
	r.state = idle
	e.outstanding--
	f.stats.Outstanding--
	f.stats.Done++
	e.service.done(now, r)
	e.policy.done(now, f, r)
	e.drop(f)
}

// Remove removes a waiting request, for example of a disconnected client, and reports whether it
// was waiting. Its tokens stay used.
func (e *Enforcer) Remove(now time.Duration, r *Request) bool {
	if r.state != waiting {
		return false
	}
	f := r.flow
	e.policy.removed(e.clock(now), f, r)
	e.unlink(f, r)
	r.state = idle
	f.stats.Removed++
	e.drop(f)
	return true
}

// unlink removes a waiting request from its queue.
func (e *Enforcer) unlink(f *flow, r *Request) {
	if r.prev == nil {
		f.head = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		f.tail = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.next, r.prev = nil, nil
	e.queued--
	f.stats.Queued--
}

// drop forgets a removed workload's flow once it is empty.
func (e *Enforcer) drop(f *flow) {
	if f.index >= 0 || f.stats.Queued+f.stats.Outstanding > 0 {
		return
	}
	for i, other := range e.flows {
		if other == f {
			// Make a new slice: the policy keeps the old slice, where an empty flow does no harm.
			e.flows = append(e.flows[:i:i], e.flows[i+1:]...)
			return
		}
	}
}
