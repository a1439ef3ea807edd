package queuedisk

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"hotbed/dataplane/service"
	"hotbed/dataplane/tests/must"
)

func shaper(t *testing.T, positioning time.Duration) *Shaper {
	t.Helper()
	s, err := NewShaper(service.Model{PositioningMean: positioning, Bandwidth: 1e6, Size: 1 << 30})
	must.Succeed(t, err)
	t.Cleanup(s.Close)
	return s
}

func TestRequestsQueueAndNeverEndEarly(t *testing.T) {
	s := shaper(t, 0)
	const n = 10
	begin := time.Now()
	ended := make(chan struct{}, n)
	for i := range n {
		ticket := s.Admit(i%2 == 0, 0, 10_000) // 10 ms each
		go func() {
			ticket.Wait()
			if took := time.Since(begin); took < time.Duration(i+1)*10*time.Millisecond {
				t.Errorf("request %d ended after %v", i, took)
			}
			ended <- struct{}{}
		}()
	}
	if got := s.Stats(); got.Queue == 0 || got.Requests != n || got.Reads != n/2 {
		t.Errorf("with all in the queue: %+v", got)
	}
	for range n {
		<-ended
	}
	got := s.Stats()
	// Waits are 0, 10, ... 90 ms minus the microseconds between the arrivals.
	if got.Queue != 0 || got.Bytes != n*10_000 || got.WaitS < 0.2 || got.WaitS > 0.4501 {
		t.Errorf("at the end: %+v", got)
	}
	if got.BusyS < 0.0999 || got.BusyS > 0.1001 {
		t.Errorf("busy %g s, want 0.1", got.BusyS)
	}
}

func TestShapingOffLetsEverybodyGo(t *testing.T) {
	s := shaper(t, 5*time.Second)
	waiting := s.Admit(false, 1<<29, 512)
	s.SetShaping(false)
	begin := time.Now()
	waiting.Wait()
	s.Admit(true, 0, 1<<20).Wait()
	if took := time.Since(begin); took > time.Second {
		t.Errorf("took %v with shaping off", took)
	}
	if got := s.Stats(); got.Shape || got.Requests != 2 || got.BusyS > 1 {
		t.Errorf("%+v", got)
	}
	s.SetShaping(true)
	if got := s.Admit(false, 1<<28, 512); got.done == nil {
		t.Error("shaping did not come back")
	}
}

func TestCloseEndsWaitingRequests(t *testing.T) {
	s := shaper(t, 10*time.Second)
	ticket := s.Admit(false, 1<<29, 512)
	s.Close()
	over := make(chan struct{})
	go func() {
		ticket.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(2 * time.Second):
		t.Fatal("a request outlives the shaper")
	}
}

func TestFaults(t *testing.T) {
	s := shaper(t, 0)
	slow, fail := 3.0, true
	must.Succeed(t, s.SetFault(&slow, nil))
	begin := time.Now()
	s.Admit(false, 0, 10_000).Wait()
	if took := time.Since(begin); took < 30*time.Millisecond {
		t.Errorf("three times 10 ms took %v", took)
	}
	must.Succeed(t, s.SetFault(nil, &fail))
	ticket := s.Admit(false, 0, 512)
	ticket.Wait()
	if got := s.Stats(); !ticket.Fail || got.Errors != 1 || got.Slow != 3 || !got.Error {
		t.Errorf("failing: %v, %+v", ticket.Fail, got)
	}
}

func TestOnlyADiskThatKeepsTheModelIsWithinTheTolerance(t *testing.T) {
	c := CheckConfig{Model: service.Model{PositioningMean: 4 * time.Millisecond, Bandwidth: 60e6, Size: 1 << 32},
		Load: 0.8, Requests: 8000, Seed: 1}
	requests := service.Poisson(c.Model, c.Load, c.Requests, CheckBytes, rand.New(rand.NewPCG(c.Seed, 1)))
	// answered returns the responses of a disk with other positioning times, each later by a constant.
	answered := func(factor float64, late time.Duration) []time.Duration {
		m := c.Model
		m.PositioningMean = time.Duration(factor * float64(m.PositioningMean))
		s := service.NewServer(m, 0)
		out := make([]time.Duration, len(requests))
		for i, r := range requests {
			_, end := s.Arrive(r.At, r.Offset, r.Bytes)
			out[i] = end - r.At + late
		}
		return out
	}
	r := estimate(c, requests, answered(1, 0))
	if !r.Within || math.Abs(r.RelativeError) > 1e-6 || math.Abs(r.MeasuredWaitS-r.ModelledWaitS) > 1e-9 {
		t.Errorf("a perfect disk: %+v", r)
	}
	for name, responses := range map[string][]time.Duration{"4 % slower": answered(1.04, 0), "4 % faster": answered(0.96, 0),
		"1 ms late": answered(1, time.Millisecond), "no queue, as a token bucket below its limit": make([]time.Duration, len(requests))} {
		if r := estimate(c, requests, responses); r.Within {
			t.Errorf("%s: relative error %g passes", name, r.RelativeError)
		}
	}
}
