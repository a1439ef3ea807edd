package nfssim

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"hotbed/dataplane/enforcer"
	"hotbed/dataplane/internal/traces"
)

func TestARequestTakesWhatItsWayTakes(t *testing.T) {
	// 302.4 bytes to the server: 2419.2 ns on each of two links. 4096 ns at the device. 4705.6 bytes back:
	// three frames of 12304 ns and one of 732.8. The last frame waits for the third on the second link.
	s := connected(one(enforcer.PM, "w"), 125e6, enforcer.PM)
	r := mustRun(t, s, listed{"w": {at(0, 4096)}})
	w := r.Workloads[0]
	for stage, want := range map[string]float64{"network-in": 4838, "storage": 4096, "network-out": 49949} {
		if got := w.Stages[stage].Max * 1e9; math.Abs(got-want) > 2 {
			t.Errorf("%s took %g ns, want %g", stage, got, want)
		}
	}
	sum := w.Stages["network-in"].Max + w.Stages["storage"].Max + w.Stages["network-out"].Max
	if math.Abs(w.Whole.All.Max-sum) > 1e-12 || w.Whole.Bytes != 4096 || w.Whole.Reads.Count != 1 {
		t.Errorf("%+v", w.Whole)
	}
	if got := r.Links[2].Pieces; got != 4 {
		t.Errorf("the reply left in %d frames, want 4", got)
	}
}

func TestNoneIsAFirstComeFirstServedQueue(t *testing.T) {
	trace := poisson(1, 20_000, 100*us, 85*us)
	r := mustRun(t, one(enforcer.None, "w"), listed{"w": trace})
	var wait, end time.Duration // Lindley's recursion
	for _, job := range trace {
		start := max(end, job.At)
		wait += start - job.At
		end = start + time.Duration(job.Size)
	}
	got := r.Workloads[0].Wait.Mean * float64(len(trace))
	if math.Abs(got-wait.Seconds()) > 1e-9 || nanoseconds(r.End) != end {
		t.Errorf("waits of %.9f s, the end at %.9f; they are %v, %v", got, r.End, wait, end)
	}
}

func TestPriorityDoesNotInterrupt(t *testing.T) {
	jobs := listed{"high": {at(2*ms, ms)}, "low": {at(0, 5*ms), at(0, 5*ms)}}
	wantLongest(t, mustRun(t, one(enforcer.PM, "high", "low"), jobs),
		map[string]time.Duration{"high": 4 * ms, "low": 11 * ms})
	wantLongest(t, mustRun(t, one(enforcer.None, "high", "low"), jobs),
		map[string]time.Duration{"high": 9 * ms, "low": 10 * ms})
	s := one(enforcer.PM, "high", "low")
	s.Devices[0].Parameters.Depth = 2 // both of low are at the device before high arrives
	wantLongest(t, mustRun(t, s, jobs), map[string]time.Duration{"high": 9 * ms, "low": 10 * ms})
}

func TestTheSameScenarioGivesTheSameResult(t *testing.T) {
	for _, policy := range enforcer.Policies {
		s := connected(one(policy, "a", "b", "c"), 1e10, enforcer.PM)
		s.Duration, s.Series, s.Frame = 0.5, 0.05, 65536
		s.Devices[0].Service.Noise = 0.5
		s.Workloads[0].SLO = 0.003
		s.Workloads[2].Closed, s.Workloads[2].Repeat = 3, true
		jobs := listed{"a": poisson(1, 300, ms, 300*us), "b": poisson(2, 300, ms, 300*us),
			"c": poisson(3, 10, ms, 300*us)}
		first := mustRun(t, s, jobs)
		if again := mustRun(t, s, jobs); text(t, first) != text(t, again) {
			t.Errorf("%s: two results of one scenario", policy)
		}
		s.Seed = 2
		if other := mustRun(t, s, jobs); text(t, first) == text(t, other) {
			t.Errorf("%s: the noise does not depend on the seed", policy)
		}
	}
}

func TestEveryRequestIsAnswered(t *testing.T) {
	for _, policy := range enforcer.Policies {
		for _, depth := range []int{1, 3, 0} {
			s := connected(one(policy, "a", "b"), 1e10, enforcer.PM)
			s.Frame = 0
			s.Devices[0].Parameters.Depth = depth
			s.Devices[0].Parameters.Workloads[1].Pairs = [][2]float64{{0.3, 0.001}}
			s.Devices[0].Parameters.Workloads[1].Limit = 0.4
			r := mustRun(t, s, listed{"a": poisson(1, 500, ms, 600*us), "b": poisson(2, 500, ms, 600*us)})
			for _, w := range r.Workloads {
				if w.Whole.Requests != 500 || w.Stages["network-out"].Count != 500 || w.Wait.Count != 500 {
					t.Errorf("%s, depth %d: %d of 500 requests were answered", policy, depth, w.Whole.Requests)
				}
			}
			if d := r.Devices[0]; d.Pieces != 1000 || d.Utilisation <= 0.5 || d.Utilisation > 1 {
				t.Errorf("%s, depth %d: %+v", policy, depth, d)
			}
		}
	}
}

// TestAWorkloadThatMisbehavesIsContainedByItsBuckets alone (figure 8: D sends more than announced).
func TestAWorkloadThatMisbehavesIsContainedByItsBuckets(t *testing.T) {
	flood := make([]traces.Request, 3000)
	for i := range flood {
		flood[i] = at(time.Duration(i)*ms, 3*ms)
	}
	jobs := listed{"D": flood, "C": poisson(5, 600, 5*ms, ms)}
	of := func(policy enforcer.Policy, mode enforcer.Mode) time.Duration {
		s := one(policy, "D", "C")
		p := &s.Devices[0].Parameters
		p.Mode = mode
		p.Workloads[0].Pairs = [][2]float64{{0.5, 0.006}, {0.1, 0.02}}
		p.Workloads[0].SLO = enforcer.Span(50 * ms)
		p.Workloads[1].SLO = enforcer.Span(100 * ms)
		return longest(mustRun(t, s, jobs))["C"]
	}
	hold, effort := of(enforcer.PM, enforcer.Hold), of(enforcer.PM, enforcer.BestEffort)
	for _, policy := range []enforcer.Policy{enforcer.EDF, enforcer.BySLO, enforcer.None} {
		if took := of(policy, ""); took < 10*hold || took < 10*effort {
			t.Errorf("C takes up to %v with %s, %v held, %v best effort", took, policy, hold, effort)
		}
	}
	if hold > 100*ms {
		t.Errorf("C takes up to %v", hold)
	}
}

func TestBucketsOfALinkBoundWhatLeavesAHost(t *testing.T) {
	s := connected(one(enforcer.None, "w"), 125e6, enforcer.PM)
	s.Links[0].Parameters.Workloads[0].Pairs = [][2]float64{{1e6, 5e4}, {1e5, 1e5}}
	trace := make([]traces.Request, 50)
	for i := range trace {
		trace[i] = traces.Request{Size: 10_000, Read: false} // writes: 11,200 bytes to the server
	}
	r := mustRun(t, s, listed{"w": trace})
	// 560,000 bytes at 100,000 a second, minus a burst of 100,000.
	if got := r.Workloads[0].Stages["network-in"].Max; math.Abs(got-4.6) > 0.02 {
		t.Errorf("the last message arrives after %g s, want 4.6", got)
	}
	if r.Links[0].Busy > 0.005 {
		t.Errorf("the link was busy for %g s", r.Links[0].Busy)
	}
}

func TestAClosedLoopKeepsItsRequestsInFlight(t *testing.T) {
	s := one(enforcer.None, "L")
	s.Workloads[0].Closed = 4
	r := mustRun(t, s, listed{"L": poisson(1, 100, ms, ms)})
	w := r.Workloads[0]
	if w.MaxBacklog != 4 || w.Whole.Requests != 100 || w.Mode != "closed" || r.Devices[0].Busy != r.End {
		t.Errorf("%+v, %+v", w, r.Devices)
	}
	s.Duration, s.Workloads[0].Repeat = 2, true
	r = mustRun(t, s, listed{"L": {at(0, ms), at(5*ms, 3*ms)}})
	w = r.Workloads[0]
	if w.MaxBacklog != 4 || w.Completed < 2 || w.Completed > 2.008 || r.Devices[0].Utilisation != 1 ||
		w.Half != 1 || math.Abs(float64(w.SecondHalf.Requests)-502) > 3 {
		t.Errorf("%+v, %+v", w, r.Devices)
	}
}

func TestTheSecondHalfAndTheWindowsOfArrivals(t *testing.T) {
	s := one(enforcer.None, "w")
	s.Workloads[0].SLO, s.Series = 0.004, 0.01
	r := mustRun(t, s, listed{"w": {at(0, 5*ms), at(9*ms, ms), at(10*ms, ms), at(20*ms, 4*ms)}})
	w := r.Workloads[0]
	if *w.Whole.Misses != 1 || *w.SecondHalf.Misses != 0 || w.SecondHalf.Requests != 2 || w.Half != 0.01 {
		t.Errorf("%+v", w)
	}
	want := [][4]float64{{0, 2, 1, 0.005}, {0.01, 1, 0, 0.001}, {0.02, 1, 0, 0.004}}
	if len(w.Series) != 3 || w.Series[0] != want[0] || w.Series[1] != want[1] || w.Series[2] != want[2] {
		t.Errorf("%v, want %v", w.Series, want)
	}
	s.Duration = 0.01
	if w := mustRun(t, s, listed{"w": {at(0, ms), at(9*ms, ms), at(10*ms, ms)}}).Workloads[0]; w.Whole.Requests != 2 ||
		w.Half != 0.005 {
		t.Errorf("%+v", w)
	}
}

// TestAWorkloadContinuesItsOwnRequests although another workload's are served in between.
func TestAWorkloadContinuesItsOwnRequests(t *testing.T) {
	const grid = `{"offsets": [0], "distances": [0], "base": [[0.01]], "bandwidth": [[1e9]]}`
	s := one(enforcer.None, "a", "b")
	s.Profiles["t"] = json.RawMessage(`{"type": "storageTable", "history": 1, "read": ` + grid + `, "write": ` + grid + `}`)
	s.Devices[0].Charged = Estimate{"t", 2}
	s.Devices[0].Service.Estimate = Estimate{"t", 2}
	jobs := listed{}
	for i := range 10 {
		for shift, name := range []string{"a", "b"} { // two interleaved sequential streams
			when := time.Duration(2*i+shift) * 20 * ms
			jobs[name] = append(jobs[name], traces.Request{At: when, Offset: int64(shift<<40 + 4096*i), Size: 4096, Read: true})
		}
	}
	want := (20*4096e-9 + 0.02) / 2
	if d := mustRun(t, s, jobs).Devices[0]; math.Abs(d.Busy-want) > 1e-8 || math.Abs(d.Cost-want) > 1e-9 {
		t.Errorf("busy for %g s, charged %g, want %g", d.Busy, d.Cost, want)
	}
	jobs["b"][3].Offset = traces.UnknownOffset
	if _, err := Run(s, jobs.open, func(float64) {}); !errors.Is(err, errOffset) {
		t.Errorf("an offset that is not given: %v", err)
	}
}

func TestTheEnforcerChargesTheGivenCost(t *testing.T) {
	s := one(enforcer.PM, "w")
	s.Profiles["flat"] = json.RawMessage(`{"type": "storageConstant", "base": 0.002, "readBandwidth": 1e15, "writeBandwidth": 1e15}`)
	s.Devices[0].Charged = Estimate{"flat", 4}
	r := mustRun(t, s, listed{"w": {at(0, ms), at(0, 3*ms)}})
	if d := r.Devices[0]; math.Abs(d.Cost-0.001) > 1e-9 || d.Busy != 0.004 {
		t.Errorf("charged %g s, busy for %g", d.Cost, d.Busy)
	}
	if w := r.Workloads[0]; math.Abs(w.Enforcer.Work-0.001) > 1e-9 || w.Service.Max != 0.003 {
		t.Errorf("%+v", w)
	}
}
