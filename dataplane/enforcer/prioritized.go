package enforcer

import (
	"cmp"
	"slices"
	"time"
)

// prioritized is pm: strict priority among requests in profile (section 3.1). An out-of-profile
// request waits for its tokens (hold), or is best effort: served by arrival when nothing in profile
// waits.
type prioritized struct {
	flows []*flow // by priority
	mode  Mode
}

func (p *prioritized) adopt(now time.Duration, e *Enforcer, same bool) {
	p.mode = e.parameters.Mode
	p.flows = slices.Clone(e.flows)
	slices.SortStableFunc(p.flows, func(a, b *flow) int {
		return cmp.Compare(a.spec.Priority, b.spec.Priority)
	})
	for _, f := range p.flows {
		if !same {
			f.shaper = shaper{asOf: now, first: f.head}
			for r := f.head; r != nil; r = r.next {
				r.inProfile = false
			}
		}
		f.shaper.setPairs(now, f.spec.Pairs)
	}
}

func (p *prioritized) arrived(now time.Duration, f *flow, r *Request) {
	if f.shaper.push(now, r) {
		f.stats.Held++
	}
}

func (p *prioritized) pick(now time.Duration) (*flow, time.Duration) {
	var best, spare *flow // in profile, and best effort
	wake := Forever
	for _, f := range p.flows {
		if best != nil && f.spec.Priority > best.spec.Priority {
			break
		}
		if f.head == nil {
			continue
		}
		f.shaper.advance(now)
		switch {
		case f.shaper.first != f.head && !f.spec.BestEffort:
			if best == nil || f.head.order < best.head.order {
				best = f
			}
		case f.spec.BestEffort || p.mode == BestEffort:
			if spare == nil || f.head.order < spare.head.order {
				spare = f
			}
		default:
			wake = min(wake, f.shaper.passes)
		}
	}
	if best == nil && spare != nil {
		if spare.shaper.first == spare.head {
			spare.shaper.take(now)
		} else {
			spare.head.inProfile = false
		}
		return spare, now
	}
	return best, wake
}

func (p *prioritized) eligible(now time.Duration) time.Duration {
	since := Forever
	for _, f := range p.flows {
		if f.head == nil {
			continue
		}
		if f.shaper.advance(now); f.shaper.first != f.head {
			since = min(since, f.head.eligible)
		} else if p.mode == BestEffort {
			since = min(since, f.head.arrived)
		}
	}
	return since
}

func (p *prioritized) dispatched(_ time.Duration, f *flow, r *Request) {
	if !r.inProfile {
		f.stats.OutOfProfile++
	}
}

func (p *prioritized) removed(now time.Duration, f *flow, r *Request) { f.shaper.forget(now, r) }

func (p *prioritized) done(time.Duration, *flow, *Request) {}
