// Package reactor runs one thread that waits for many sockets and an alarm. Callbacks may touch
// everything else that the thread owns without locks; they must not block.
//
// One thread replaces a goroutine per connection: a message then costs one wake-up instead of a
// hand-over between goroutines for every step. This cost dominates on the path of each I/O.
package reactor

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Events that a handler can wait for; errors and hang-ups are always reported.
const (
	Readable = unix.EPOLLIN
	Writable = unix.EPOLLOUT
	Broken   = unix.EPOLLERR | unix.EPOLLHUP
)

// Forever is a time that never comes.
const Forever = time.Duration(math.MaxInt64)

// Handler is called when an event that it waits for has occurred.
type Handler interface{ Ready(events uint32) }

// Loop belongs to its thread. Other threads may call only Do and Stop.
type Loop struct {
	// After is called after all simultaneous events have been handled, before the next wait.
	After func()
	// Alarm is called at the time set by WakeAt.
	Alarm func()
	// Tick is called about every second.
	Tick func()

	epoch    time.Time
	poll     int
	timer    int
	wake     int
	handlers []entry  // by file descriptor
	spare    [][]byte // buffers without a connection
	closing  []int    // closed at the end of a round, so that their numbers are not reused in it
	wakeAt   time.Duration
	stopped  bool

	mutex sync.Mutex
	calls []func()
	over  bool // its file descriptors are closed
}

type entry struct {
	handler Handler
	use     int32 // counts uses of the number, to separate old events from new ones
}

// New returns a loop that does not run yet.
func New() (*Loop, error) {
	l := &Loop{epoch: time.Now(), wakeAt: Forever}
	var err error
	if l.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("cannot wait for sockets: %w", err)
	}
	if l.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("cannot create a timer: %w", err)
	}
	if l.wake, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("cannot create an event counter: %w", err)
	}
	err = errors.Join(l.Add(l.timer, Readable, handlerFunc(l.rang)), l.Add(l.wake, Readable,
		handlerFunc(l.called)))
	return l, err
}

type handlerFunc func(uint32)

func (f handlerFunc) Ready(events uint32) { f(events) }

// Now returns the time since the loop was made.
func (l *Loop) Now() time.Duration { return time.Since(l.epoch) }

// Add waits for events of a file descriptor, which must be non-blocking.
func (l *Loop) Add(fd int, events uint32, h Handler) error {
	for fd >= len(l.handlers) {
		l.handlers = append(l.handlers, make([]entry, len(l.handlers)+64)...)
	}
	l.handlers[fd].handler = h
	l.handlers[fd].use++
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(l.poll, unix.EPOLL_CTL_ADD, fd,
		&unix.EpollEvent{Events: events, Fd: int32(fd), Pad: l.handlers[fd].use}))
}

// Wait changes the events waited for.
func (l *Loop) Wait(fd int, events uint32) error {
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(l.poll, unix.EPOLL_CTL_MOD, fd,
		&unix.EpollEvent{Events: events, Fd: int32(fd), Pad: l.handlers[fd].use}))
}

// Close closes a file descriptor that was added.
func (l *Loop) Close(fd int) {
	_ = unix.EpollCtl(l.poll, unix.EPOLL_CTL_DEL, fd, nil)
	l.handlers[fd].handler = nil
	l.closing = append(l.closing, fd)
}

// WakeAt sets the alarm, replacing the previous time; Forever disables it.
func (l *Loop) WakeAt(at time.Duration) {
	if at == l.wakeAt {
		return
	}
	l.wakeAt = at
	var spec unix.ItimerSpec
	if at < Forever {
		spec.Value = unix.NsecToTimespec(int64(max(at-l.Now(), 1))) // zero would disarm it
	}
	_ = unix.TimerfdSettime(l.timer, 0, &spec, nil)
}

func (l *Loop) rang(uint32) {
	var count [8]byte
	if n, _ := unix.Read(l.timer, count[:]); n != 8 {
		return // the alarm was set again meanwhile
	}
	l.wakeAt = Forever
	if l.Alarm != nil {
		l.Alarm()
	}
}

// Do makes the thread call f, without waiting. After End it calls nothing: another file may then
// have the number of the wake-up descriptor.
func (l *Loop) Do(f func()) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.over {
		return
	}
	l.calls = append(l.calls, f)
	_, _ = unix.Write(l.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

func (l *Loop) called(uint32) {
	var count [8]byte
	_, _ = unix.Read(l.wake, count[:])
	l.mutex.Lock()
	calls := l.calls
	l.calls = nil
	l.mutex.Unlock()
	for _, f := range calls {
		f()
	}
}

// Stop ends Run after the current round.
func (l *Loop) Stop() { l.Do(func() { l.stopped = true }) }

// Run serves until Stop is called. It occupies a thread.
func (l *Loop) Run() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	shortTurns()
	var events [256]unix.EpollEvent
	ticked := l.Now()
	for !l.stopped {
		n, err := unix.EpollWait(l.poll, events[:], 1000)
		if err != nil && err != unix.EINTR {
			return os.NewSyscallError("epoll_wait", err)
		}
		for i := range max(n, 0) {
			e := &events[i]
			if entry := &l.handlers[e.Fd]; entry.handler != nil && entry.use == e.Pad {
				entry.handler.Ready(e.Events)
			}
		}
		if now := l.Now(); now-ticked >= time.Second {
			ticked = now
			if l.Tick != nil {
				l.Tick()
			}
		}
		if l.After != nil {
			l.After()
		}
		for _, fd := range l.closing {
			_ = unix.Close(fd)
		}
		l.closing = l.closing[:0]
	}
	return nil
}

// turn is the time slice that a thread requests, in nanoseconds: the kernel's minimum.
const turn = 100_000

// shortTurns asks the scheduler for short time slices. The thread mostly waits; with a short slice
// it runs soon after waking even if others are busy (Linux 6.12 and later). Earlier kernels ignore
// the request; the loop works without it.
func shortTurns() {
	if attributes, err := unix.SchedGetAttr(0, 0); err == nil && attributes.Policy == unix.SCHED_NORMAL {
		attributes.Runtime = turn
		_ = unix.SchedSetAttr(0, attributes, 0)
	}
}

// End closes the loop's own descriptors, after Run.
func (l *Loop) End() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.over = true
	for _, fd := range append(l.closing, l.timer, l.wake, l.poll) {
		_ = unix.Close(fd)
	}
}
