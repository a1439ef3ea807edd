package enforcer

import (
	"math"
	"time"
)

// ordered serves the request with the smallest key, and the earliest arrival at equal keys: edf by
// deadline, byslo by SLO, none by arrival alone. A workload without an SLO has an infinite SLO.
type ordered struct {
	flows []*flow
	kind  Policy
}

func (o *ordered) adopt(_ time.Duration, e *Enforcer, _ bool) {
	o.flows, o.kind = e.flows, e.parameters.Policy
}

// key returns the ordering key of a flow's first request, from the current SLO.
func (o *ordered) key(f *flow) time.Duration {
	if o.kind == None {
		return 0
	}
	slo := time.Duration(f.spec.SLO)
	switch {
	case slo == 0:
		return math.MaxInt64
	case o.kind == BySLO:
		return slo
	}
	return f.head.arrived + slo
}

func (o *ordered) pick(time.Duration) (*flow, time.Duration) {
	var best *flow
	var least time.Duration
	for _, f := range o.flows {
		if f.head == nil {
			continue
		}
		key := o.key(f)
		if best == nil || key < least || (key == least && f.head.order < best.head.order) {
			best, least = f, key
		}
	}
	return best, Forever
}

func (o *ordered) eligible(time.Duration) time.Duration { return earliest(o.flows) }

func (o *ordered) arrived(time.Duration, *flow, *Request)    {}
func (o *ordered) dispatched(time.Duration, *flow, *Request) {}
func (o *ordered) removed(time.Duration, *flow, *Request)    {}
func (o *ordered) done(time.Duration, *flow, *Request)       {}
