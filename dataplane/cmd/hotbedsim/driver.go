package main

import (
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// lookEvery is how often a program whose driver is gone looks whether it computes.
const lookEvery = 10 * time.Millisecond

// leaveWithDriver calls leave when the driver at the other end of the pipe is gone while an answer is
// being computed, which can take minutes and has nobody to go to: a driver that was killed closes
// its end as one that has finished does. Between answers the end of the input is read as such.
//
// The driver is not watched by PR_SET_PDEATHSIG, which means the thread that started the program:
// one of a pool may end before its process does.
func leaveWithDriver(pipe int, busy *atomic.Bool, leave func()) {
	fds := []unix.PollFd{{Fd: int32(pipe)}} // no events: only that the other end was closed
	for {
		_, err := unix.Poll(fds, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || fds[0].Revents&unix.POLLHUP == 0 {
			return
		}
		break
	}
	for !busy.Load() {
		time.Sleep(lookEvery)
	}
	leave()
}
