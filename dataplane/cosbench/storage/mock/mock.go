// Package mock has COSBench's two stores without a server: mock, which takes a set time for each
// operation and fails a set share of them, and none, which does nothing.
package mock

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"hotbed/dataplane/cosbench/access"
	"hotbed/dataplane/cosbench/auth"
	"hotbed/dataplane/cosbench/storage"
)

// COSBench's defaults: what an object read has, in bytes, and what an operation takes.
const (
	defaultSize  = 1000
	defaultDelay = 10 * time.Millisecond
)

// Keys are mock's: size (bytes that a read answers), delay (milliseconds an operation), errors (the
// share that fails, 0 to 1). Of COSBench's debugging aids only "off" is taken.
var Keys = []string{"size", "delay", "errors", "printing", "doStats", "logging"}

// NoneKeys are those of storage type none.
var NoneKeys = []string{"logging"}

type store struct {
	size   int64
	delay  time.Duration
	errors float64
	random *rand.Rand
}

// opened numbers the workers: each fails its own operations, the same ones in every run.
var opened atomic.Uint64

// Open makes a worker's mock.
func Open(config storage.Config, _ auth.Session) (storage.Storage, error) {
	s, err := read(config)
	if err != nil {
		return nil, err
	}
	s.random = rand.New(rand.NewPCG(opened.Add(1), 0))
	return s, nil
}

// Check says what of mock's config is no size, delay or share.
func Check(config storage.Config) error {
	_, err := read(config)
	return err
}

func read(config storage.Config) (*store, error) {
	s := &store{}
	var err error
	if s.size, err = config.Int("size", defaultSize); err != nil {
		return nil, err
	}
	if s.size < 0 {
		return nil, fmt.Errorf("size=%d is not a number of bytes from 0", s.size)
	}
	if s.delay, err = config.Milliseconds("delay", defaultDelay); err != nil {
		return nil, err
	}
	if s.errors, err = config.Float("errors", 0); err != nil {
		return nil, err
	}
	if s.errors < 0 || s.errors > 1 {
		return nil, fmt.Errorf("errors=%v is not a share from 0 to 1", s.errors)
	}
	for _, key := range []string{"printing", "doStats", "logging"} {
		if on, err := config.Bool(key, false); err != nil {
			return nil, err
		} else if on {
			return nil, fmt.Errorf("%s=true is not supported; leave it out", key)
		}
	}
	return s, nil
}

// OpenNone makes a worker's store that does nothing, at once.
func OpenNone(config storage.Config, _ auth.Session) (storage.Storage, error) {
	return &store{}, CheckNone(config)
}

// CheckNone is Check for storage type none.
func CheckNone(config storage.Config) error {
	_, err := config.Bool("logging", false)
	return err
}

// work is an operation: first whether it fails, then what it takes, as in COSBench.
func (s *store) work(ctx context.Context) error {
	if s.errors > 0 && s.random.Float64() < s.errors {
		return &access.Error{Kind: access.Server, Message: "the mock store failed as its config says"}
	}
	if s.delay > 0 {
		timer := time.NewTimer(s.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return access.Ended(err)
	}
	return nil
}

func (s *store) CreateContainer(ctx context.Context, _ string) error { return s.work(ctx) }

func (s *store) DeleteContainer(ctx context.Context, _ string) error { return s.work(ctx) }

func (s *store) Delete(ctx context.Context, _, _ string) error { return s.work(ctx) }

func (s *store) List(ctx context.Context, _, _ string) (int64, error) { return 0, s.work(ctx) }

func (s *store) Close() error { return nil }

// Put reads the body to its end.
func (s *store) Put(ctx context.Context, _, _ string, body io.Reader, length int64) error {
	n, err := io.Copy(io.Discard, body)
	if err != nil || length >= 0 && n != length {
		return &access.Error{Kind: access.Client, Message: fmt.Sprintf(
			"the body of an object ended after %d of %d bytes: %v", n, length, err)}
	}
	return s.work(ctx)
}

func (s *store) Get(ctx context.Context, _, _ string) (io.ReadCloser, int64, error) {
	if err := s.work(ctx); err != nil {
		return nil, 0, err
	}
	return io.NopCloser(io.LimitReader(zeros{}, s.size)), s.size, nil
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
