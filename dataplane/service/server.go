package service

import "time"

// Server is a first-come-first-served disk that works on one request at a time. Times are
// durations since an epoch of the caller's choice. It is a plain value without locking: the caller
// serializes Arrive, and the order of its calls is the order of service.
type Server struct {
	// Model may be changed between arrivals; requests already accepted keep their times.
	Model Model
	// Slow multiplies every service time (a slow-disk fault); 0 means 1.
	Slow float64

	free time.Duration // when the last accepted request ends
	head int64         // where the last accepted request leaves the head
	work time.Duration // service time accepted so far
}

// NewServer returns an idle server with its head at offset 0, free from `now` on.
func NewServer(m Model, now time.Duration) *Server {
	return &Server{Model: m, free: now}
}

// Arrive accepts a request of n bytes at offset at time now and returns when its service starts
// and ends: start is the later of now and the end of the request before it, so the disk never idles
// while work waits, and an end computed from the end before it cannot drift.
func (s *Server) Arrive(now time.Duration, offset, n int64) (start, end time.Duration) {
	start = max(now, s.free)
	took := s.Model.Service(s.head, offset, n)
	if s.Slow > 0 && s.Slow != 1 {
		took = time.Duration(float64(took) * s.Slow)
	}
	s.free = start + took
	s.head = offset + n
	s.work += took
	return start, s.free
}

// Backlog is the work accepted but not finished at time now.
func (s *Server) Backlog(now time.Duration) time.Duration {
	return max(0, s.free-now)
}

// Busy is how long the disk has been serving up to time now.
func (s *Server) Busy(now time.Duration) time.Duration {
	return s.work - s.Backlog(now)
}

// Release forgets the backlog at time now: every accepted request counts as finished by then. It is
// for switching the shaping off; a real disk has no such thing.
func (s *Server) Release(now time.Duration) {
	s.work -= s.Backlog(now)
	s.free = min(s.free, now)
}
