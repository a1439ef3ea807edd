package enforcer

import (
	"math"
	"time"
)

// leastCost is the minimum cost of a request with shared costs, in seconds: with free requests a
// workload could keep others waiting forever.
const leastCost = 1e-9

func costOf(r *Request) float64 { return math.Max(r.Cost, leastCost) }

// shareState is SFQ(D)'s state of a flow.
type shareState struct {
	weight  float64
	given   float64         // cake: the workload's own weight when this weight was set
	finish  float64         // finish tag of the last dispatched request
	samples []time.Duration // cake: latencies of this interval
	every   uint64          // cake: one latency in this many is kept
	seen    uint64
}

// share is start-time fair queueing with depth, SFQ(D) (Jin, Chase and Kaur, SIGMETRICS 2004), on
// estimated device seconds. A request that arrives at virtual time v has the start tag S = max(v, F
// of the previous request) and the finish tag F = S + cost / weight. The smallest S is served, and
// v is the start tag of the last dispatch. When the server becomes idle v becomes the largest F.
// Tags are computed when a request becomes the first of its queue, so that a changed weight applies
// to all requests behind it.
type share struct {
	flows    []*flow
	workers  int // number of flows that are workloads
	virtual  float64
	finished float64 // largest finish tag
	busy     int     // requests waiting or outstanding
	cake     *CakeParameters
	next     time.Duration // end of cake's interval
}

func (s *share) adopt(now time.Duration, e *Enforcer, same bool) {
	s.flows, s.workers = e.flows, len(e.parameters.Workloads)
	s.busy = e.queued + e.outstanding
	if !same {
		s.virtual, s.finished = 0, 0
		for _, f := range s.flows {
			f.share = shareState{}
			for r := f.head; r != nil; r = r.next {
				r.virtual = 0
			}
		}
	}
	if e.parameters.Policy == Cake {
		s.adoptCake(now, e.parameters.Cake)
		return
	}
	s.cake = nil
	for _, f := range s.flows {
		f.share.weight = f.spec.Weight
		f.share.given = 0
	}
}

// start returns the start tag of a flow's next request.
func (s *share) start(f *flow, r *Request) float64 { return math.Max(r.virtual, f.share.finish) }

func (s *share) arrived(now time.Duration, f *flow, r *Request) {
	s.adapt(now)
	if s.busy == 0 {
		s.virtual = s.finished
	}
	s.busy++
	r.virtual = s.virtual
}

func (s *share) pick(now time.Duration) (*flow, time.Duration) {
	s.adapt(now)
	var best *flow
	var least float64
	for _, f := range s.flows {
		if f.head == nil {
			continue
		}
		start := s.start(f, f.head)
		if best == nil || start < least || (start == least && f.head.order < best.head.order) {
			best, least = f, start
		}
	}
	return best, Forever
}

func (s *share) eligible(time.Duration) time.Duration { return earliest(s.flows) }

func (s *share) dispatched(_ time.Duration, f *flow, r *Request) {
	s.virtual = s.start(f, r)
	f.share.finish = s.virtual + costOf(r)/f.share.weight
	s.finished = math.Max(s.finished, f.share.finish)
}

func (s *share) removed(time.Duration, *flow, *Request) { s.busy-- }

func (s *share) done(now time.Duration, f *flow, r *Request) {
	s.busy--
	s.sample(f, now-r.arrived)
	s.adapt(now)
}
