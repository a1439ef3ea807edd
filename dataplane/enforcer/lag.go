package enforcer

import "time"

// Service measures how well the server kept up with the charged costs, since the parameters took
// effect.
//
// A bound from costs holds for a server that does `cost` of work in `cost` seconds. A real server
// differs from request to request, and its front end takes additional time. Consider a request that
// is done at time c. Its turn begins when it, or any other request waiting at its dispatch, was
// eligible (it had come, and its token buckets let it pass), but not before the previous request was
// done. From then on the server had work, whatever caused the delay. Then
//
//	behind = max(0, behind of the previous request) + (c - begin of its turn) - cost
//
// with 0 for the previous request if the server had nothing eligible in between. By induction, for
// any request i of one busy period that is served no later than request n,
//
//	done(n) - begin(i) <= cost(i) + ... + cost(n) + Lag
//
// with Lag the maximum of `behind`. With one request at the server at a time, this is a
// rate-latency service curve, [t - Lag]+: take for i the last request of lower priority (it began
// when nothing of at least n's priority was eligible), or the first of the busy period. So the
// bound with blocking, of a queue with this lag, holds for the real service
// (controllers/prioritymeister/network_calculus.py).
type Service struct {
	Done   uint64        // served requests
	Cost   time.Duration // their charged cost
	Busy   time.Duration // their turns
	Lag    time.Duration // maximum delay of the server against the charged cost
	behind time.Duration
	last   time.Duration // when the last request was done
}

// done accounts for the end of a request.
func (s *Service) done(now time.Duration, r *Request) {
	begin := s.last
	if r.turn > s.last {
		begin, s.behind = r.turn, 0
	}
	cost := time.Duration(r.Cost * 1e9)
	s.behind = max(0, s.behind) + (now - begin) - cost
	s.Lag = max(s.Lag, s.behind)
	s.Done++
	s.Cost += cost
	s.Busy += now - begin
	s.last = now
}

// restart resets the counts.
func (s *Service) restart() { *s = Service{last: s.last} }

// Service returns the measurements since the parameters took effect.
func (e *Enforcer) Service() Service { return e.service }
