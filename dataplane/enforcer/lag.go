package enforcer

import "time"

// Service tells how the server kept up with the costs that it was charged, since the parameters came
// into force.
//
// A bound that is made of costs holds for a server that does `cost` of work in `cost` seconds. A real
// one differs from request to request, and what stands before it takes time of its own. Of a request
// that is done at time c let its turn begin when it, or any other that waited when it was dispatched,
// might have been served (Eligible), but not before the one that was done before it: the server had
// something to do from then on, whatever was late. Then
//
//	behind = max(0, behind of the one before) + (c - begin of its turn) - cost
//
// where "of the one before" is 0 when the server had nothing eligible in between. By induction, for
// any request i of one busy period that is served no later than request n,
//
//	done(n) - begin(i) <= cost(i) + ... + cost(n) + Lag
//
// with Lag the largest `behind` that there was. With one request at the server at a time that is a
// rate-latency service curve, [t - Lag]+: take for i the last of lower priority (it began when
// nothing of at least n's priority was eligible), or the first of the busy period. So the bound that
// counts blocking, of a queue with this lag, holds for what was really served
// (controllers/prioritymeister/system.py).
type Service struct {
	Done   uint64        // requests that were served
	Cost   time.Duration // of them, as charged
	Busy   time.Duration // turns of them
	Lag    time.Duration // the largest that the server was behind what it was charged
	behind time.Duration
	last   time.Duration // when the last request was done
}

// done takes a request's end into account.
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

// restart begins to count anew.
func (s *Service) restart() { *s = Service{last: s.last} }

// Service tells how the server kept up.
func (e *Enforcer) Service() Service { return e.service }

// Eligible is when a request might have been served at the earliest: when it came, or when its token
// buckets let it pass.
func (r *Request) Eligible() time.Duration { return r.eligible }
