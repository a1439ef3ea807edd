package queuedisk

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

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
