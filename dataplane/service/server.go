package service

import "time"

// Server is a first-come-first-served disk that works on one request at a time. Times are durations
// since an epoch that the caller chooses. It has no locking: the caller serializes Arrive, and the
// order of its calls is the order of service.
type Server struct {
	// Model may be changed between arrivals; requests already accepted keep their times.
	Model Model
	// Slow multiplies every service time (a slow-disk fault); 0 means 1.
	Slow float64

	free time.Duration // when the last accepted request ends
	head int64         // where the last accepted request leaves the head
	work time.Duration // service time accepted so far
}

// NewServer returns an idle server with its head at offset 0, free from `now`.
func NewServer(m Model, now time.Duration) *Server {
	return &Server{Model: m, free: now}
}

// Arrive accepts a request of n bytes at offset at time now and returns its service's start and
// end. The start is the later of now and the end of the previous request, so the disk never idles
// while work waits. Each end is computed from the previous end, so ends cannot drift.
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

// backlog returns the work accepted but not finished at time now.
func (s *Server) backlog(now time.Duration) time.Duration {
	return max(0, s.free-now)
}

// Busy returns the disk's total service time up to time now.
func (s *Server) Busy(now time.Duration) time.Duration {
	return s.work - s.backlog(now)
}

// Release drops the backlog at time now: every accepted request counts as finished. It exists to
// switch shaping off; a real disk cannot do it.
func (s *Server) Release(now time.Duration) {
	s.work -= s.backlog(now)
	s.free = min(s.free, now)
}
