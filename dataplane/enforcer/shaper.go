package enforcer

import (
	"math"
	"time"
)

// tolerance is how much more than its burst a bucket takes, relative: what rounding may make of a
// sum, so that a trace is not held up by the very pairs that were computed from it.
const tolerance = 1e-9

// bucket is a leaky token bucket (section 3.1): a request's cost is poured in if it fits, what is in
// it leaks at the rate.
type bucket struct{ rate, burst, fill float64 }

// delay is how long after a time at which the bucket holds `fill` there is room for cost: 0 when
// there is already. A cost above the burst has room when the bucket is empty; otherwise such a
// request would wait for ever.
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

// after is what the bucket holds when it has leaked for d.
func (b *bucket) after(d time.Duration) float64 {
	return math.Max(0, b.fill-float64(b.rate*d.Seconds()))
}

// shaper is a workload's chain of token buckets. Requests pass it in order, each at the earliest time
// at which all buckets have room, and are charged at that very time, however late the enforcer looks:
// what bounds a workload is the time at which it *may* be served (an arrival curve in front of the
// queue), not the time at which higher priorities let it.
type shaper struct {
	buckets []bucket
	asOf    time.Duration // when the buckets held what they say
	first   *Request      // the first that has not passed, nil when all have
	passes  time.Duration // when it will
}

// push tells of a request that has been put at the end of the queue; it says whether it has to wait.
func (s *shaper) push(now time.Duration, r *Request) bool {
	if s.first == nil {
		s.first = r
		s.plan()
	}
	return !s.advance(now)
}

// plan finds when the first request that has not passed will.
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
	if s.passes < start { // beyond the end of time
		s.passes = Forever
	}
}

// advance lets every request pass whose time has come, and says whether all have.
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

// leak brings the buckets to time t.
func (s *shaper) leak(t time.Duration) {
	for i := range s.buckets {
		s.buckets[i].fill = s.buckets[i].after(t - s.asOf)
	}
	s.asOf = t
}

// take lets the first request, which has not passed, through out of profile: it takes the tokens
// that are there.
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

// forget takes a request that is about to leave the queue out of the shaper's way.
func (s *shaper) forget(now time.Duration, r *Request) {
	s.advance(now)
	if s.first == r {
		s.first = r.next
		s.plan()
	}
}

// setPairs changes the buckets. One that stays keeps what it holds. A new one starts with what the
// old ones tell: it has leaked no more slowly than the next slower of them, so it holds no more than
// that one (with no slower one: what the slowest holds), and no more than its burst.
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

// holds is the most that a bucket of this rate can hold by what the present ones do.
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
