package enforcer

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestTheLagIsTheMostThatTheServerWasBehind(t *testing.T) {
	e := mustNew(t, Parameters{Policy: None, Depth: 1, Workloads: []Workload{{Name: "a"}}})
	jobs := []job{{0, 0, 0.010}, {0, 1 * ms, 0.010}, {0, 2 * ms, 0.010}, {0, 100 * ms, 0.010}}
	driveFor(t, e, jobs, []time.Duration{14 * ms, 7 * ms, 12 * ms, 13 * ms})
	// Behind by 4, 1, 3 ms; then the server was idle, and behind by 3 ms.
	want := Service{Done: 4, Cost: 40 * ms, Busy: 46 * ms, Lag: 4 * ms}
	if got := e.Service(); got.Done != want.Done || got.Cost != want.Cost || got.Busy != want.Busy ||
		got.Lag != want.Lag {
		t.Errorf("%+v, want %+v", got, want)
	}
	if err := e.SetParameters(200*ms, e.Parameters()); err != nil || e.Service().Lag != 0 || e.Service().Done != 0 {
		t.Errorf("with new parameters it is %+v, %v", e.Service(), err)
	}
}

func TestTheLagCountsWhatOthersWaitedWhileNobodyLooked(t *testing.T) {
	// A request passes its bucket at 20 ms, unnoticed until another at 25 ms, which goes first.
	e := mustNew(t, Parameters{Policy: PM, Depth: 1, Workloads: []Workload{
		{Name: "high", Priority: 1},
		{Name: "low", Priority: 2, Pairs: [][2]float64{{0.5, 0.01}}}}})
	high := Request{Cost: 0.010}
	var low [2]Request
	for i := range low {
		low[i] = Request{Workload: 1, Cost: 0.010}
		e.Arrive(0, &low[i])
	}
	for i, want := range []*Request{&low[0], &high, &low[1]} {
		at := []time.Duration{0, 25 * ms, 35 * ms}[i]
		if want == &high {
			e.Arrive(at, want)
		}
		r, _ := e.Next(at)
		if r != want {
			t.Fatal("it is another request's turn")
		}
		e.Done(at+10*ms, r)
	}
	if got := low[1].eligible; got != 20*ms {
		t.Errorf("eligible at %v", got)
	}
	// From 20 to 45 ms, for work of 20 ms.
	if got := e.Service().Lag; got != 5*ms {
		t.Errorf("the lag is %v", got)
	}
}

// Bursts at one instant, with two priorities. With the measured lag, no response is longer than all
// work of at least its priority, one request of the other priority, and the lag.
func TestNoResponseIsLongerThanItsWorkBlockingAndTheLag(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 8))
	broken := 0
	for range 300 {
		var jobs []job
		var took []time.Duration
		var work [2]time.Duration
		var largest time.Duration
		for range 1 + random.IntN(30) {
			w, cost := random.IntN(2), time.Duration(1+random.IntN(20))*ms
			jobs = append(jobs, job{w, 0, cost.Seconds()})
			took = append(took, time.Duration(random.Float64()*2.2*float64(cost)))
			work[w] += cost
			if w == 1 {
				largest = max(largest, cost)
			}
		}
		e := mustNew(t, Parameters{Policy: PM, Depth: 1, Workloads: []Workload{
			{Name: "high", Priority: 1}, {Name: "low", Priority: 2}}})
		for _, one := range driveFor(t, e, jobs, took) {
			bound, r := work[0]+largest, one.done-one.at
			if one.workload == 1 {
				bound = work[0] + work[1]
			}
			if r > bound {
				broken++
			}
			if r > bound+e.Service().Lag {
				t.Fatalf("job %d of %v took %v, above %v and %v", one.id, jobs, r, bound, e.Service().Lag)
			}
		}
	}
	if broken == 0 {
		t.Error("without the lag no bound was exceeded: the test shows nothing")
	}
}
