package enforcer

import (
	"math"
	"time"
)

// tolerance is a bucket's relative excess over its burst. It absorbs rounding of sums, so that a
// trace is not held by the pairs computed from it.
const tolerance = 1e-9

// bucket is a leaky token bucket (section 3.1): a request's cost is poured in if it fits, and the
// content leaks at the rate.
type bucket struct{ rate, burst, fill float64 }

// delay returns the time until a bucket with content `fill` has room for cost, 0 if there is room.
// A cost above the burst fits when the bucket is empty; otherwise such a request would wait
// forever.
func (b *bucket) delay(fill, cost float64) time.Duration {
	over := fill - math.Max(b.burst-cost, 0)
	if over <= tolerance*math.Max(b.burst, cost) {
		return 0
	}
	wait := math.Ceil(over / b.rate * 1e9)
	if wait >= 1<<62 {
		return 1 << 62
	}
	return time.Duration(wait)
}

// after returns the bucket's content after leaking for d.
func (b *bucket) after(d time.Duration) float64 {
	return math.Max(0, b.fill-float64(b.rate*d.Seconds()))
}

// shaper is a workload's chain of token buckets. Requests pass it in order, each at the earliest
// time when all buckets have room, and are charged at that time, however late the enforcer looks.
// The limit applies to the time when a request *may* be served (an arrival curve in front of the
// queue), not when higher priorities let it.
type shaper struct {
	buckets []bucket
	asOf    time.Duration // time of the buckets' contents
	first   *Request      // first request that has not passed, nil if all have
	passes  time.Duration // time when it passes
}

// push adds a request that was appended to the queue, and reports whether it must wait.
func (s *shaper) push(now time.Duration, r *Request) bool {
	if s.first == nil {
		s.first = r
		s.plan()
	}
	return !s.advance(now)
}

// plan computes the passing time of the first request that has not passed.
func (s *shaper) plan() {
	if s.first == nil {
		return
	}
	start := max(s.first.arrived, s.asOf)
	var wait time.Duration
	for i := range s.buckets {
		b := &s.buckets[i]
		wait = max(wait, b.delay(b.after(start-s.asOf), s.first.Cost))
	}
	s.passes = start + wait
	if s.passes < start { // after the end of time
		s.passes = Forever
	}
}

// advance lets every due request pass, and reports whether all have passed.
func (s *shaper) advance(now time.Duration) bool {
	for s.first != nil && s.passes <= now {
		r := s.first
		s.leak(s.passes)
		for i := range s.buckets {
			s.buckets[i].fill += r.Cost
		}
		r.inProfile, r.eligible = true, s.passes
		s.first = r.next
		s.plan()
	}
	return s.first == nil
}

// leak advances the buckets to time t.
func (s *shaper) leak(t time.Duration) {
	for i := range s.buckets {
		s.buckets[i].fill = s.buckets[i].after(t - s.asOf)
	}
	s.asOf = t
}

// take passes the first request not yet passed, out of profile, with the tokens available.
func (s *shaper) take(now time.Duration) {
	r := s.first
	r.eligible = now
	s.leak(max(now, s.asOf))
	for i := range s.buckets {
		b := &s.buckets[i]
		b.fill = math.Min(math.Max(b.burst, b.fill), b.fill+r.Cost)
	}
	s.first = r.next
	s.plan()
}

// forget removes a request that will leave the queue.
func (s *shaper) forget(now time.Duration, r *Request) {
	s.advance(now)
	if s.first == r {
		s.first = r.next
		s.plan()
	}
}

// setPairs changes the buckets. An unchanged bucket keeps its content. A new bucket starts with no
// more than its burst, and no more than the next slower old bucket's content, because it leaks at
// least as fast. If none is slower, the slowest bucket's content applies.
func (s *shaper) setPairs(now time.Duration, pairs [][2]float64) {
	s.advance(now)
	s.leak(max(now, s.asOf))
	made := make([]bucket, len(pairs))
	for i, pair := range pairs {
		made[i] = bucket{rate: pair[0], burst: pair[1]}
		made[i].fill = math.Min(pair[1], s.holds(pair))
		for _, old := range s.buckets {
			if old.rate == pair[0] && old.burst == pair[1] {
				made[i].fill = old.fill
			}
		}
	}
	s.buckets = made
	s.plan()
}

// holds returns the maximum content of a bucket of this rate, from the present buckets.
func (s *shaper) holds(pair [2]float64) float64 {
	slower, slowest := -1, -1
	for i, b := range s.buckets {
		if b.rate <= pair[0] && (slower < 0 || b.rate > s.buckets[slower].rate) {
			slower = i
		}
		if slowest < 0 || b.rate < s.buckets[slowest].rate {
			slowest = i
		}
	}
	switch {
	case slower >= 0:
		return s.buckets[slower].fill
	case slowest >= 0:
		return s.buckets[slowest].fill
	}
	return 0
}
