// Package enforcer decides which of the waiting requests a storage server serves next: the storage
// enforcer of PriorityMeister (Zhu et al., SoCC 2014, sections 3.1 and 4.5) and the policies that the
// paper compares it with (5.3), and mClock, behind one interface.
//
// The package has no clock and does no I/O. The NFS proxy drives it on the wall clock, a simulator on
// virtual time: the same code. Requests of a workload are served in the order in which they came;
// a policy chooses among workloads.
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

// Forever is a time that never comes.
const Forever = time.Duration(math.MaxInt64)

// Request is one request. Its owner keeps it, unmoved, from Arrive to Done or Remove; afterwards it
// may be used again.
type Request struct {
	// Workload is the index of its workload in the parameters at the time of Arrive.
	Workload int
	// Cost is the estimated work: seconds of the device.
	Cost float64
	// Data is the owner's.
	Data any

	flow       *flow
	next, prev *Request
	arrived    time.Duration
	eligible   time.Duration // see Service
	turn       time.Duration // when it or one that waited with it was eligible, the earliest
	order      uint64        // counts arrivals
	state      state
	inProfile  bool    // pm: its tokens were there
	virtual    float64 // ps: virtual time when it came
	tags       tags    // mclock
}

type state uint8

const (
	idle state = iota
	waiting
	outstanding
)

// Arrived is when it came.
func (r *Request) Arrived() time.Duration { return r.arrived }

// InProfile tells of a request that pm dispatched whether all its buckets had room for it.
func (r *Request) InProfile() bool { return r.inProfile }

// flow is the queue of a workload, with what the policies keep of it.
type flow struct {
	spec       Workload
	index      int // in the parameters, -1 for one that was taken out and still has requests
	head, tail *Request
	stats      WorkloadStats

	shaper shaper // pm
	share  shareState
	mclock mclockState
}

// policy chooses among flows. Flows with nothing waiting are never chosen.
type policy interface {
	// arrived is called when r has been appended to f.
	arrived(now time.Duration, f *flow, r *Request)
	// pick names the flow whose first request is to be served now, or none and when to ask again.
	pick(now time.Duration) (*flow, time.Duration)
	// eligible is since when something has been waiting that might be served.
	eligible(now time.Duration) time.Duration
	// dispatched is called when r, the first of f, has been taken out.
	dispatched(now time.Duration, f *flow, r *Request)
	// removed is called before r is taken out of f without being served.
	removed(now time.Duration, f *flow, r *Request)
	// done is called when r has been served.
	done(now time.Duration, f *flow, r *Request)
	// adopt takes flows and parameters as they are now, and keeps what the flows' states tell when
	// `same` says that they are this kind of policy's.
	adopt(now time.Duration, e *Enforcer, same bool)
}

// Enforcer queues requests by workload and dispatches at most Depth at a time. It is not safe for
// concurrent use. Times are durations since an epoch of the caller's choice and never go back.
type Enforcer struct {
	parameters  Parameters
	flows       []*flow // those of the parameters in their order, then those taken out
	policy      policy
	now         time.Duration
	queued      int
	outstanding int
	order       uint64
	service     Service
}

// New returns an enforcer with nothing queued; the error is one sentence on what is wrong in the
// parameters.
func New(p Parameters) (*Enforcer, error) {
	e := &Enforcer{}
	if err := e.SetParameters(0, p); err != nil {
		return nil, err
	}
	return e, nil
}

// Parameters are those in force.
func (e *Enforcer) Parameters() Parameters { return e.parameters }

// Queued is how many requests wait, Outstanding how many are dispatched and not done.
func (e *Enforcer) Queued() int { return e.queued }

// Outstanding is how many requests are dispatched and not done.
func (e *Enforcer) Outstanding() int { return e.outstanding }

// SetParameters changes the parameters at time now. Queued requests stay queued, in their workload
// by its name; those of a workload that is gone are best effort. On an error nothing has changed.
//
// pm: what buckets hold is kept (see shaper.setPairs). ps, cake: tags of waiting requests follow the
// new weights, weights that cake adapted stay unless the workload's own weight is another. mclock:
// waiting requests are tagged anew after the last that was served. A change of policy starts the new
// one with what waits, as if it had all come at once.
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
	for _, f := range e.flows { // in their order, which the map does not have
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

// earliest is when the first of all that wait came.
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

// Next dispatches the request that the policy serves now. When there is none it returns nil and the
// time at which to ask again unless something arrives or is done before; Forever when only that helps.
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
	if r.turn > e.service.last { // the server was idle; since when need it not have been?
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

// Done tells that an outstanding request has been served.
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

// Remove takes back a request that waits, such as one of a client that is gone, and says whether it
// did wait. Tokens that it took stay taken.
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

// unlink takes a waiting request out of its queue.
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

// drop forgets a flow that was taken out of the parameters once it has nothing left.
func (e *Enforcer) drop(f *flow) {
	if f.index >= 0 || f.stats.Queued+f.stats.Outstanding > 0 {
		return
	}
	for i, other := range e.flows {
		if other == f {
			// A new slice: the policy keeps the old one, where an empty flow does no harm.
			e.flows = append(e.flows[:i:i], e.flows[i+1:]...)
			return
		}
	}
}
