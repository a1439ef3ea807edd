package nfsproxy

import (
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"hotbed/dataplane/internal/nfs3"
	"hotbed/dataplane/internal/sunrpc"
	"hotbed/dataplane/tests/memnfs"
)

// slowly returns a server with reads that take longer than the profile says (1 ms and a little).
// The first read takes until `first` is closed.
func slowly(took time.Duration, first chan struct{}) *memnfs.Server {
	var once sync.Once
	return &memnfs.Server{Hold: func(c sunrpc.Call) (hold <-chan struct{}) {
		if c.Procedure == nfs3.ProcRead {
			hold = memnfs.After(took)
			once.Do(func() { hold = first })
		}
		return hold
	}}
}

func TestAResponseIsNoLongerThanItsBoundWithTheLagThatWasMeasured(t *testing.T) {
	const count, cost = 12, time.Millisecond + 10*time.Nanosecond // 1 byte at 1e8 bytes/s
	first := make(chan struct{})
	r := newRig(t, slowly(3*time.Millisecond, first), `{"policy": "none", "depth": 1}`)
	handle := r.file("f", 4096)
	r.put(parameters(`{"policy": "pm", "depth": 1, "workloads": [{"priority": 1}, {"priority": 2}]}`))
	high, low := r.raw(2), r.raw(3)
	for i := range count {
		_, _ = low.Write(readCall(uint32(i), handle, 0, 1))
		_, _ = high.Write(readCall(uint32(i), handle, 0, 1))
	}
	r.eventually("all but one wait", func(s Status) bool { return s.Queued == 2*count-1 })
	close(first)
	replies(t, high, count)
	replies(t, low, count)
	r.eventually("all were counted", func(s Status) bool { return s.Service.Calls == 2*count })
	s := r.status()
	bursts := map[string]time.Duration{
		"a": count*cost + cost, // its own, and one of lower priority that is not interrupted
		"b": 2 * count * cost,
	}
	for _, w := range s.Workloads[:2] {
		bound := bursts[w.Name].Seconds()
		if w.Longest <= bound {
			t.Errorf("%s: the longest response is %g s, within %g s: the test shows nothing", w.Name,
				w.Longest, bound)
		}
		if w.Longest > bound+s.Service.Lag+1e-9 {
			t.Errorf("%s: the longest response is %g s, above %g s and the lag of %g s", w.Name, w.Longest,
				bound, s.Service.Lag)
		}
	}
	// Every call except the first took 2 ms more than its charge.
	if least := float64(2*count-1) * 1.9e-3; s.Service.Busy-s.Service.Charged < least {
		t.Errorf("%+v: the server's turns were not %g s longer than its charges", s.Service, least)
	}
	if _, page := r.ask("GET", "/metrics", ""); !strings.Contains(page, "\nhotbed_nfsproxy_lag_seconds ") {
		t.Error("the lag is not among the metrics")
	}
	var turns uint64
	var seconds float64
	for _, t := range s.Service.Turns {
		turns, seconds = turns+t.Calls, seconds+t.Seconds
	}
	if turns != s.Service.Calls || math.Abs(seconds-s.Service.Busy) > 1e-6 {
		t.Errorf("turns by kind and size are %+v, and the server was busy for %g s with %d calls",
			s.Service.Turns, s.Service.Busy, s.Service.Calls)
	}
	r.put(parameters(`{"policy": "pm", "depth": 1}`))
	if s := r.status(); s.Service.Calls != 0 || s.Service.Lag != 0 || len(s.Service.Turns) != 0 || s.Workloads[0].Longest != 0 {
		t.Errorf("with new parameters it is %+v, %+v", s.Service, s.Workloads[0])
	}
}
