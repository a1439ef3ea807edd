package main

import (
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// lookEvery is the interval at which a program without a driver checks if it is busy.
const lookEvery = 10 * time.Millisecond

// leaveWithDriver calls leave if the driver closed its end of the pipe during a computation. A
// computation can take minutes, and nobody would read its answer. A killed driver closes its end
// exactly as a finished one does; between answers, the reader of the input sees the end.
//
// PR_SET_PDEATHSIG does not fit: it watches the thread that started the program, and a pool's
// thread can end before its process.
func leaveWithDriver(pipe int, busy *atomic.Bool, leave func()) {
	fds := []unix.PollFd{{Fd: int32(pipe)}} // no events: poll reports only the hangup
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
