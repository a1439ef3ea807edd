// Package command holds what the programs share: a user's mistake is one sentence and exit status
// 2, any other failure is exit status 1, and a request for help is neither.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// UsageError is a user's mistake: one sentence, exit status 2.
type UsageError struct{ error }

// Usage marks err as the user's mistake.
func Usage(err error) error { return UsageError{err} }

// Usagef formats a user's mistake.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// Main runs the named program. SIGTERM, SIGINT and the further signals end its context. If run
// returns an error, Main prints it and exits with its status.
func Main(name string, run func(ctx context.Context, args []string) error, further ...os.Signal) {
	ctx, stop := signal.NotifyContext(context.Background(), append(further, syscall.SIGTERM, syscall.SIGINT)...)
	defer stop()
	if status := status(os.Stderr, name, run(ctx, os.Args[1:])); status != 0 {
		os.Exit(status)
	}
}

// Hangup waits until the other end of a pipe is closed. It returns false if that cannot be known.
func Hangup(pipe int) bool {
	fds := []unix.PollFd{{Fd: int32(pipe)}} // no events: poll reports only the hangup
	for {
		_, err := unix.Poll(fds, -1)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
		}
	}
}

// Progress overwrites a line on standard error, at most once a second. A nil Progress shows nothing.
type Progress struct {
	mu          sync.Mutex
	began, next time.Time
}

// NewProgress returns a Progress that begins now, or nil if standard error is not a terminal.
func NewProgress() *Progress {
	if info, err := os.Stderr.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return &Progress{began: time.Now()}
}

// Show shows a text, and with a share of the work above 0 the estimated time left.
func (p *Progress) Show(share float64, format string, args ...any) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Before(p.next) {
		return
	}
	p.next = now.Add(time.Second)
	fmt.Fprintf(os.Stderr, "\r"+format+" ", args...)
	if share > 0 {
		fmt.Fprintf(os.Stderr, "(%.0f s left) ", now.Sub(p.began).Seconds()*(1-share)/share)
	}
}

// End clears the line.
func (p *Progress) End() {
	if p != nil {
		fmt.Fprint(os.Stderr, "\r\033[K")
	}
}

// ProcessorTime returns the CPU time of this process on all CPUs, which other processes do not affect.
func ProcessorTime() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func status(out io.Writer, name string, err error) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	_, _ = fmt.Fprintf(out, "%s: %v\n", name, err)
	if usage := (UsageError{}); errors.As(err, &usage) {
		return 2
	}
	return 1
}

// Parse parses flags and, among them, one argument per operand; it rejects further ones. On a request
// for help it prints the flags below usage and returns flag.ErrHelp.
func Parse(flags *flag.FlagSet, args []string, usage string, operands ...*string) error {
	flags.SetOutput(io.Discard) // one sentence instead of the flag package's page
	for {
		err := flags.Parse(args)
		switch {
		case errors.Is(err, flag.ErrHelp):
			flags.SetOutput(os.Stdout)
			fmt.Printf("usage: %s %s\n", flags.Name(), usage)
			flags.PrintDefaults()
			return err
		case err != nil:
			return Usagef("%w; `%s --help` lists the flags", err, flags.Name())
		case flags.NArg() == 0 && len(operands) > 0:
			return Usagef("an argument is missing: %s %s", flags.Name(), usage)
		case flags.NArg() == 0:
			return nil
		case len(operands) == 0:
			return Usagef("unexpected argument %q; `%s --help` lists the flags", flags.Arg(0), flags.Name())
		}
		*operands[0], operands, args = flags.Arg(0), operands[1:], flags.Args()[1:]
	}
}
