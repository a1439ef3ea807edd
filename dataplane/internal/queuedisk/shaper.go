// Package queuedisk serves a disk with a queue: one file in a FUSE mount. The model of package
// service serves its requests one at a time on the wall clock.
package queuedisk

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"hotbed/dataplane/service"
)

// MaxSlow bounds the factor of a slow-disk fault.
const MaxSlow = 1000

// Stats is a snapshot of a shaper's counters since its start. Times are in seconds.
type Stats struct {
	Requests   int64   `json:"requests"`
	Reads      int64   `json:"reads"`
	Writes     int64   `json:"writes"`
	Bytes      int64   `json:"bytes"`
	BytesRead  int64   `json:"bytes_read"`
	BytesWrite int64   `json:"bytes_written"`
	Errors     int64   `json:"errors"` // requests refused by the error fault
	BusyS      float64 `json:"busy_s"` // time spent serving so far
	WaitS      float64 `json:"wait_s"` // sum over requests of start - arrival
	MeanWaitS  float64 `json:"mean_wait_s"`
	Queue      int     `json:"queue"` // accepted, unfinished requests, including the one in service
	UptimeS    float64 `json:"uptime_s"`

	// Overshoot is the alarm's lateness when it completes requests. It delays answers only: the
	// next request starts at the model's end of the previous one, so lateness does not add up.
	OvershootMeanS float64 `json:"overshoot_mean_s"`
	OvershootMaxS  float64 `json:"overshoot_max_s"`

	Shape         bool    `json:"shape"`
	PositioningUs float64 `json:"positioning_us"`
	BandwidthBps  float64 `json:"bandwidth_bytes"`
	SizeBytes     int64   `json:"size_bytes"`
	Slow          float64 `json:"slow"`
	Error         bool    `json:"error"`
	Realtime      bool    `json:"realtime"` // the process has real-time priority
}

// pending is an accepted request that waits for its end.
type pending struct {
	end  time.Duration
	done chan struct{}
}

// Shaper admits requests to a service.Server on the wall clock and signals each request's end.
type Shaper struct {
	clock *clock

	mu     sync.Mutex
	server *service.Server
	queue  []pending // in order of end, which is the order of arrival: first come, first served
	on     bool      // false: requests end at once
	fail   bool      // true: requests end with an error, after their service
	stats  Stats     // the counters; Stats fills in the rest

	overshoot time.Duration // sum over requests that an alarm ended
	ended     int64         // number of these requests
}

// NewShaper starts a shaper for a model; Close stops it.
func NewShaper(m service.Model) (*Shaper, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	c, err := newClock()
	if err != nil {
		return nil, err
	}
	s := &Shaper{clock: c, server: service.NewServer(m, c.now()), on: true}
	s.server.Slow = 1
	go s.finish()
	return s, nil
}

// Ticket is an admitted request.
type Ticket struct {
	done chan struct{} // nil: already over
	// Fail means that the request must end with an I/O error and must not touch data.
	Fail bool
}

// Wait returns when the disk has finished the request.
func (t Ticket) Wait() {
	if t.done != nil {
		<-t.done
	}
}

// Admit queues a request of n bytes at offset that arrives now.
func (s *Shaper) Admit(write bool, offset int64, n int) Ticket {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(write, int64(n))
	t := Ticket{Fail: s.fail}
	if s.fail {
		s.stats.Errors++
	}
	if !s.on {
		return t
	}
	now := s.clock.now()
	start, end := s.server.Arrive(now, offset, int64(n))
	s.stats.WaitS += (start - now).Seconds()
	t.done = make(chan struct{})
	s.queue = append(s.queue, pending{end, t.done})
	if len(s.queue) == 1 {
		s.arm(end)
	}
	return t
}

func (s *Shaper) count(write bool, n int64) {
	s.stats.Requests++
	s.stats.Bytes += n
	if write {
		s.stats.Writes++
		s.stats.BytesWrite += n
	} else {
		s.stats.Reads++
		s.stats.BytesRead += n
	}
}

// arm sets the alarm. It can fail only on a closed clock, when finish releases all requests.
func (s *Shaper) arm(at time.Duration) { _ = s.clock.set(at) }

// finish ends requests at their times until the clock is closed.
func (s *Shaper) finish() {
	for s.clock.wait() == nil {
		s.mu.Lock()
		now := s.clock.now()
		over := 0
		for ; over < len(s.queue) && s.queue[over].end <= now; over++ {
			late := now - s.queue[over].end
			s.overshoot += late
			s.ended++
			s.stats.OvershootMaxS = max(s.stats.OvershootMaxS, late.Seconds())
			close(s.queue[over].done)
		}
		s.queue = append(s.queue[:0], s.queue[over:]...)
		if len(s.queue) > 0 {
			s.arm(s.queue[0].end)
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release()
}

// release ends every waiting request now.
func (s *Shaper) release() {
	s.server.Release(s.clock.now())
	for _, p := range s.queue {
		close(p.done)
	}
	s.queue = s.queue[:0]
}

// SetShaping switches the service times on or off. Off, waiting requests end at once and new ones
// take only the host's time. Off is for filling a disk, never for measuring.
func (s *Shaper) SetShaping(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = on
	if !on {
		s.release()
	}
}

// SetModel changes the model's mean positioning time and bandwidth for future requests; nil keeps
// the current value.
func (s *Shaper) SetModel(positioning *time.Duration, bandwidth *float64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.server.Model
	if positioning != nil {
		m.PositioningMean = *positioning
	}
	if bandwidth != nil {
		m.Bandwidth = *bandwidth
	}
	if err := m.Validate(); err != nil {
		return err
	}
	s.server.Model = m
	return nil
}

// SetFault multiplies service times by slow and makes requests fail; nil keeps the current value.
func (s *Shaper) SetFault(slow *float64, fail *bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slow != nil {
		if !(*slow >= 1 && *slow <= MaxSlow) {
			return fmt.Errorf("the slow factor is %g, allowed is 1 to %d", *slow, MaxSlow)
		}
		s.server.Slow = *slow
	}
	if fail != nil {
		s.fail = *fail
	}
	return nil
}

// SetRealtime records for Stats if the process runs with real-time priority.
func (s *Shaper) SetRealtime(realtime bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Realtime = realtime
}

// Stats returns the current counters.
func (s *Shaper) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.now()
	out := s.stats
	out.BusyS = s.server.Busy(now).Seconds()
	out.Queue = len(s.queue)
	out.UptimeS = now.Seconds()
	if out.Requests > 0 {
		out.MeanWaitS = out.WaitS / float64(out.Requests)
	}
	if s.ended > 0 {
		out.OvershootMeanS = s.overshoot.Seconds() / float64(s.ended)
	}
	out.Shape, out.Slow, out.Error = s.on, s.server.Slow, s.fail
	out.PositioningUs = float64(s.server.Model.PositioningMean) / 1e3
	out.BandwidthBps, out.SizeBytes = s.server.Model.Bandwidth, s.server.Model.Size
	return out
}

// Close stops the shaping for good and ends every waiting request.
func (s *Shaper) Close() {
	s.SetShaping(false)
	s.clock.close()
}

// clock is a monotonic clock with one alarm. The alarm is a timerfd in the runtime's poller: it
// fires about 50 us late here. time.Sleep, which rounds to the poller's whole milliseconds, has a
// mean lateness of 570 us. One alarm suffices for a disk: a first-come-first-served queue ends its
// requests in the order it accepted them.
type clock struct {
	epoch time.Time
	fd    int
	file  *os.File
}

func newClock() (*clock, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot create a timer: %w", err)
	}
	return &clock{epoch: time.Now(), fd: fd, file: os.NewFile(uintptr(fd), "timerfd")}, nil
}

// now returns the time since the clock was made.
func (c *clock) now() time.Duration { return time.Since(c.epoch) }

// set arms the alarm for time `at`, replacing any earlier setting.
func (c *clock) set(at time.Duration) error {
	left := max(at-c.now(), 1) // zero would disarm it
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(left))}
	return unix.TimerfdSettime(c.fd, 0, &spec, nil)
}

// wait blocks until the alarm fires; an error means that the clock was closed.
func (c *clock) wait() error {
	var count [8]byte
	_, err := c.file.Read(count[:])
	return err
}

// sleepUntil waits for time `at` on a clock with no other user.
func (c *clock) sleepUntil(at time.Duration) error {
	if at <= c.now() {
		return nil
	}
	if err := c.set(at); err != nil {
		return err
	}
	return c.wait()
}

func (c *clock) close() { _ = c.file.Close() }

// becomeFlusher marks this process as one that the kernel's write-back may wait for. Its
// allocations then never wait for write-back to the disk served here, and its writes to layers are
// not throttled for other devices' dirty pages. Best effort: it needs CAP_SYS_RESOURCE and Linux
// 5.6.
func becomeFlusher() {
	_, _, _ = syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_IO_FLUSHER, 1, 0, 0, 0, 0)
}

// BecomeRealtime gives this process the lowest real-time priority and returns true if it succeeded.
// A real disk does not compete for its machine's CPUs; this process's work is short, and its
// lateness counts as the disk's latency. The kernel refuses without CAP_SYS_NICE, and outside the
// root cpu cgroup on hosts with cgroup v1 and real-time group scheduling. The disk then runs at
// normal priority.
func BecomeRealtime() bool {
	priority := int32(1)
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_SCHED_SETSCHEDULER, 0, unix.SCHED_RR,
		uintptr(unsafe.Pointer(&priority)))
	return errno == 0
}
