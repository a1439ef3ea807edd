package enforcer

import (
	"math"
	"time"
)

// nanosecond, in the seconds that tags are counted in, is how far a tag may lie ahead and yet be due.
const nanosecond = 1e-9

// tags of a request in mClock: reservation, limit and proportion, in seconds since the epoch.
type tags struct{ r, l, p float64 }

// mclockState is what mClock knows of a flow. The tags of requests and in here are as they were
// given; what has been taken off them since is in the shifts.
type mclockState struct {
	last           tags // of the request tagged last
	served         tags // of the request dispatched last
	rShift, pShift float64
}

// mclock is mClock (Gulati, Merchant and Varman, OSDI 2010, algorithm 1), with a request's cost where
// the paper has 1, so that reservations and limits are shares of the device:
//
//	R = max(R of the one before + cost/reservation, t), L and P likewise with limit and weight.
//
// The smallest R is served if it is due; otherwise, among those whose L is due, the smallest P, and
// cost/reservation is taken off the workload's R tags. When a workload comes that was idle (nothing
// waiting, nothing outstanding) all others' P tags are moved so that their smallest is now.
type mclock struct {
	flows    []*flow
	since    time.Duration // when the policy came into force
	byWeight bool          // how the last pick was made
}

func (m *mclock) adopt(now time.Duration, e *Enforcer, same bool) {
	m.flows = e.flows
	if !same {
		m.since = now
	}
	none := tags{math.Inf(-1), math.Inf(-1), math.Inf(-1)}
	for _, f := range m.flows {
		s := &f.mclock
		if !same || f.stats.Dispatched == 0 || *s == (mclockState{}) {
			*s = mclockState{last: none, served: none}
		} else {
			s.served.r -= s.rShift
			s.served.p -= s.pShift
			s.rShift, s.pShift, s.last = 0, 0, s.served
		}
		for r := f.head; r != nil; r = r.next {
			f.tag(r, max(r.arrived, m.since).Seconds())
		}
	}
}

// tag gives a request that comes at time t its tags.
func (f *flow) tag(r *Request, t float64) {
	s, cost := &f.mclock, costOf(r)
	r.tags.r, r.tags.l = math.Inf(1), math.Inf(-1)
	if f.spec.Reservation > 0 {
		r.tags.r = math.Max(s.last.r-s.rShift+cost/f.spec.Reservation, t) + s.rShift
		s.last.r = r.tags.r
	}
	if f.spec.Limit > 0 {
		r.tags.l = math.Max(s.last.l+cost/f.spec.Limit, t)
		s.last.l = r.tags.l
	}
	r.tags.p = math.Max(s.last.p-s.pShift+cost/f.spec.Weight, t) + s.pShift
	s.last.p = r.tags.p
}

// proportion is where a flow that is not idle stands: the P tag of its first request, or of its last
// when none waits.
func (f *flow) proportion() float64 {
	if f.head != nil {
		return f.head.tags.p - f.mclock.pShift
	}
	return f.mclock.last.p - f.mclock.pShift
}

func (m *mclock) arrived(now time.Duration, f *flow, r *Request) {
	t := now.Seconds()
	if f.stats.Queued == 1 && f.stats.Outstanding == 0 {
		m.synchronise(t, f)
	}
	f.tag(r, t)
}

// synchronise moves the P tags of all flows but f that are not idle so that their smallest is t.
func (m *mclock) synchronise(t float64, f *flow) {
	least := math.Inf(1)
	for _, other := range m.flows {
		if other != f && other.stats.Queued+other.stats.Outstanding > 0 {
			least = math.Min(least, other.proportion())
		}
	}
	if math.IsInf(least, 0) {
		return
	}
	for _, other := range m.flows {
		if other != f && other.stats.Queued+other.stats.Outstanding > 0 {
			other.mclock.pShift += least - t
		}
	}
}

func (m *mclock) pick(now time.Duration) (*flow, time.Duration) {
	t := now.Seconds() + nanosecond
	var reserved, shared *flow
	leastR, leastP, wake := math.Inf(1), math.Inf(1), math.Inf(1)
	for _, f := range m.flows {
		if f.head == nil {
			continue
		}
		r, p := f.head.tags.r-f.mclock.rShift, f.head.tags.p-f.mclock.pShift
		if r <= t && (r < leastR || (r == leastR && f.head.order < reserved.head.order)) {
			reserved, leastR = f, r
		}
		if f.head.tags.l <= t {
			if shared == nil || p < leastP || (p == leastP && f.head.order < shared.head.order) {
				shared, leastP = f, p
			}
		} else {
			wake = math.Min(wake, math.Min(r, f.head.tags.l))
		}
	}
	if reserved != nil {
		m.byWeight = false
		return reserved, now
	}
	m.byWeight = true
	if shared == nil && wake < 1<<33 { // 272 years
		return nil, time.Duration(math.Ceil(wake * 1e9))
	}
	return shared, Forever
}

func (m *mclock) eligible(time.Duration) time.Duration { return earliest(m.flows) }

func (m *mclock) dispatched(_ time.Duration, f *flow, r *Request) {
	s := &f.mclock
	s.served = r.tags
	if f.spec.Reservation == 0 {
		s.served.r = math.Inf(-1)
	}
	if f.spec.Limit == 0 {
		s.served.l = math.Inf(-1)
	}
	if m.byWeight && f.spec.Reservation > 0 {
		s.rShift += costOf(r) / f.spec.Reservation
	}
}

func (m *mclock) removed(time.Duration, *flow, *Request) {}

func (m *mclock) done(time.Duration, *flow, *Request) {}
