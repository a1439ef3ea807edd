package queuedisk

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"hotbed/dataplane/service"
)

// checkWorkers bounds the reads in flight. The loads of a check do not reach such a queue. If they
// did, the wait for a worker would count: responses are timed from the intended start.
const checkWorkers = 192

// aligned returns n bytes at an address that direct I/O accepts.
func aligned(n int) []byte {
	const unit = 4096
	b := make([]byte, n+unit)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (unit - 1)
	return b[skip : skip+n]
}

func readOnce(f *os.File, buffer []byte, r service.Request) error {
	n, err := syscall.Pread(int(f.Fd()), buffer[:r.Bytes], r.Offset)
	if err != nil {
		return fmt.Errorf("read of %d bytes at %d: %w", r.Bytes, r.Offset, err)
	}
	if int64(n) != r.Bytes {
		return fmt.Errorf("read of %d bytes at %d: got %d", r.Bytes, r.Offset, n)
	}
	return nil
}

// idleOverhead reads one request after another and returns the mean of response - service (s). The
// mean is the delay that FUSE, timer and scheduler add to a request without a queue.
func idleOverhead(f *os.File, m service.Model, rng *rand.Rand, n int) (float64, error) {
	buffer := aligned(CheckBytes)
	var head int64
	var sum time.Duration
	for range n {
		r := service.Request{Offset: rng.Int64N(m.Size/CheckBytes) * CheckBytes, Bytes: CheckBytes}
		start := time.Now()
		if err := readOnce(f, buffer, r); err != nil {
			return 0, err
		}
		sum += time.Since(start) - m.Service(head, r.Offset, r.Bytes)
		head = r.Offset + r.Bytes
	}
	return sum.Seconds() / float64(n), nil
}

// openLoop issues the requests at their times, independent of the disk. It returns each response
// time, counted from the intended arrival, and the mean lateness of issuing (s).
func openLoop(ctx context.Context, f *os.File, requests []service.Request, progress io.Writer) (
	responses []time.Duration, late float64, err error) {
	c, err := newClock()
	if err != nil {
		return nil, 0, err
	}
	defer c.close()
	responses = make([]time.Duration, len(requests))
	todo := make(chan int, len(requests))
	failed := make(chan error, checkWorkers)
	origin := c.now() + 10*time.Millisecond
	var workers sync.WaitGroup
	for range checkWorkers {
		workers.Go(func() {
			buffer := aligned(CheckBytes)
			for i := range todo {
				if err := readOnce(f, buffer, requests[i]); err != nil {
					failed <- err
					return
				}
				responses[i] = c.now() - origin - requests[i].At
			}
		})
	}
	var lateness time.Duration
	line := newProgress(progress, requests[len(requests)-1].At)
	for i, r := range requests {
		if err = c.sleepUntil(origin + r.At); err != nil {
			break
		}
		lateness += c.now() - origin - r.At
		todo <- i
		line.show(r.At)
		if err = ctx.Err(); err != nil {
			err = fmt.Errorf("interrupted: %w", err)
			break
		}
		if len(failed) > 0 {
			break
		}
	}
	close(todo)
	workers.Wait()
	line.end()
	if len(failed) > 0 {
		err = <-failed
	}
	return responses, lateness.Seconds() / float64(len(requests)), err
}

// progress writes one line that it overwrites, at most once a second.
type progress struct {
	out         io.Writer
	total, next time.Duration
}

func newProgress(out io.Writer, total time.Duration) *progress {
	return &progress{out: out, total: total}
}

func (p *progress) show(at time.Duration) {
	if p.out == nil || at < p.next {
		return
	}
	p.next = at + time.Second
	_, _ = fmt.Fprintf(p.out, "\rcheck: %.0f s of %.0f s, %.0f s left ",
		at.Seconds(), p.total.Seconds(), (p.total - at).Seconds())
}

func (p *progress) end() {
	if p.out != nil {
		_, _ = fmt.Fprint(p.out, "\r\033[K")
	}
}
