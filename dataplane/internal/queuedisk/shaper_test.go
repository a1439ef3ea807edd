package queuedisk

import (
	"testing"
	"time"

	"hotbed/dataplane/service"
)

func shaper(t *testing.T, positioning time.Duration) *Shaper {
	t.Helper()
	s, err := NewShaper(service.Model{PositioningMean: positioning, Bandwidth: 1e6, Size: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
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
	if err := s.SetFault(&slow, nil); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	s.Admit(false, 0, 10_000).Wait()
	if took := time.Since(begin); took < 30*time.Millisecond {
		t.Errorf("three times 10 ms took %v", took)
	}
	if err := s.SetFault(nil, &fail); err != nil {
		t.Fatal(err)
	}
	ticket := s.Admit(false, 0, 512)
	ticket.Wait()
	if got := s.Stats(); !ticket.Fail || got.Errors != 1 || got.Slow != 3 || !got.Error {
		t.Errorf("failing: %v, %+v", ticket.Fail, got)
	}
	for _, bad := range []float64{0, 0.5, -1, MaxSlow + 1} {
		if err := s.SetFault(&bad, nil); err == nil {
			t.Errorf("slow %g was taken", bad)
		}
	}
}
