// Package reactor runs one thread that waits for many sockets and an alarm. What it calls may touch
// everything else that the thread owns without locks; nothing in it may block.
//
// One thread rather than a goroutine for each connection: a message then costs one wake-up, not a
// hand-over between goroutines for every step, and on the path of each I/O that is what counts.
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

// Events that a handler can wait for; errors and hang-ups are always told.
const (
	Readable = unix.EPOLLIN
	Writable = unix.EPOLLOUT
	Broken   = unix.EPOLLERR | unix.EPOLLHUP
)

// Forever is a time that never comes.
const Forever = time.Duration(math.MaxInt64)

// Handler is called when something that it waits for has come.
type Handler interface{ Ready(events uint32) }

// Loop is the thread's. Only Do and Stop may be called from others.
type Loop struct {
	// After is called when all that came together has been handled, before the next wait.
	After func()
	// Alarm is called when the time set by WakeAt has come.
	Alarm func()
	// Tick is called about every second.
	Tick func()

	epoch    time.Time
	poll     int
	timer    int
	wake     int
	handlers []entry  // by file descriptor
	spare    [][]byte // buffers that no connection has
	closing  []int    // closed at the end of a round, so that their numbers are not used again in it
	wakeAt   time.Duration
	stopped  bool

	mutex sync.Mutex
	calls []func()
	over  bool // its file descriptors are closed
}

type entry struct {
	handler Handler
	use     int32 // counts uses of the number, so that an old event is told from a new one
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

// Now is the time since the loop was made.
func (l *Loop) Now() time.Duration { return time.Since(l.epoch) }

// Add waits for events of a file descriptor, which must not block.
func (l *Loop) Add(fd int, events uint32, h Handler) error {
	for fd >= len(l.handlers) {
		l.handlers = append(l.handlers, make([]entry, len(l.handlers)+64)...)
	}
	l.handlers[fd].handler = h
	l.handlers[fd].use++
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(l.poll, unix.EPOLL_CTL_ADD, fd,
		&unix.EpollEvent{Events: events, Fd: int32(fd), Pad: l.handlers[fd].use}))
}

// Wait changes what is waited for.
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

// WakeAt sets the alarm to a time, in place of the one before; Forever is none.
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
		return // it was set anew meanwhile
	}
	l.wakeAt = Forever
	if l.Alarm != nil {
		l.Alarm()
	}
}

// Do has the thread call f. It does not wait. After End nothing is called: the number of the
// descriptor that wakes the thread may be another file's by then.
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

// Stop ends Run after the present round.
func (l *Loop) Stop() { l.Do(func() { l.stopped = true }) }

// Run serves until Stop is called. It takes a thread for itself.
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

// turn is how long a thread asks to run at a time, in nanoseconds: the least that there is.
const turn = 100_000

// shortTurns asks the scheduler for short turns. The thread mostly waits, and one that asks for little
// is let run soon after it was woken though others are busy (Linux 6.12 and later; earlier ones take
// no notice, and none of them is needed).
func shortTurns() {
	if attributes, err := unix.SchedGetAttr(0, 0); err == nil && attributes.Policy == unix.SCHED_NORMAL {
		attributes.Runtime = turn
		_ = unix.SchedSetAttr(0, attributes, 0)
	}
}

// End closes what is the loop's own, after Run.
func (l *Loop) End() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.over = true
	for _, fd := range append(l.closing, l.timer, l.wake, l.poll) {
		_ = unix.Close(fd)
	}
}
