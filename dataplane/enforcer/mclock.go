package enforcer

import (
	"math"
	"time"
)

// nanosecond, in the tags' unit of seconds, is the maximum lead of a tag that is due.
const nanosecond = 1e-9

// tags holds a request's mClock tags: reservation, limit, proportion, in seconds since the epoch.
type tags struct{ r, l, p float64 }

// mclockState is mClock's state of a flow. All tags are stored as assigned; later subtractions are
// in the shifts.
type mclockState struct {
	last           tags // tags of the last tagged request
	served         tags // tags of the last dispatched request
	rShift, pShift float64
}

// mclock is mClock (Gulati, Merchant and Varman, OSDI 2010, algorithm 1). A request's cost replaces
// the paper's 1, so that reservations and limits are shares of the device:
//
//	R = max(R of the previous request + cost/reservation, t), L and P likewise with limit and weight.
//
// The smallest R is served if due. Otherwise the smallest P with a due L is served, and
// cost/reservation is subtracted from the workload's R tags. When an idle workload (nothing waiting
// or outstanding) becomes active, all others' P tags shift so that their minimum is now.
type mclock struct {
	flows    []*flow
	since    time.Duration // start of the policy
	byWeight bool          // last pick was by weight
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

// tag assigns the tags of a request that arrives at time t.
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

// proportion returns the position of an active flow: the P tag of its first waiting request, or of
// its last request if none waits.
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

// synchronise shifts the P tags of all active flows except f so that their minimum is t.
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
