package enforcer

import (
	"math"
	"testing"
	"time"
)

func cakeOf(workloads ...Workload) Parameters {
	return Parameters{Policy: Cake, Depth: 1, Workloads: workloads,
		Cake: CakeParameters{Interval: Span(time.Second), Upper: 1.5, Floor: 0.05}}
}

func wantWeights(t *testing.T, e *Enforcer, want ...float64) {
	t.Helper()
	for i, s := range e.Stats() {
		if math.Abs(s.Weight-want[i]) > 1e-12 {
			t.Errorf("weight %d is %.6f, want %.6f", i, s.Weight, want[i])
		}
	}
}

// serve completes requests of a workload with these latencies, within the current interval.
func serve(e *Enforcer, now time.Duration, workload int, latencies ...time.Duration) {
	for _, latency := range latencies {
		r := &Request{Workload: workload, Cost: 1e-6}
		e.Arrive(now, r)
		if got, _ := e.Next(now); got != r {
			panic("not alone")
		}
		now += latency
		e.Done(now, r)
	}
}

// TestCakeAdaptsWeights at the end of an interval, by one latency of each workload.
func TestCakeAdaptsWeights(t *testing.T) {
	for name, c := range map[string]struct {
		slo, first, second time.Duration // of workload b; latencies of a (SLO 20 ms) and b, 0 for none
		a, b               float64
	}{
		"raised, for perf is 0.5: times min(1.1, 2)":                          {0, 40 * ms, 0, 0.55, 0.5},
		"raised by what is missing, for perf is 20/21":                        {0, 21 * ms, 0, 0.525, 0.5},
		"lowered, for perf is 10 and 1.6: times max(0.9, 0.15) and 1.5 / 1.6": {16 * ms, 2 * ms, 10 * ms, 0.45, 0.5 * 1.5 / 1.6},
		"left between the bounds":                                             {20 * ms, 15 * ms, 0, 0.5, 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			e := mustNew(t, cakeOf(Workload{Name: "a", SLO: Span(20 * ms)}, Workload{Name: "b", SLO: Span(c.slo)}))
			wantWeights(t, e, 0.5, 0.5)
			serve(e, 0, 0, c.first)
			if c.second > 0 {
				serve(e, 10*ms, 1, c.second)
			}
			serve(e, time.Second, 1, 1*ms) // any call after the interval
			wantWeights(t, e, c.a/(c.a+c.b), c.b/(c.a+c.b))
		})
	}
}

func TestCakeGoesByThePercentile(t *testing.T) {
	p := cakeOf(Workload{Name: "a", SLO: Span(20 * ms)}, Workload{Name: "copy"})
	p.Cake.Interval = Span(10 * time.Second)
	e := mustNew(t, p)
	latencies := make([]time.Duration, 100)
	for i := range latencies {
		latencies[i] = 15 * ms
	}
	latencies[7] = 100 * ms // rank 100 of 100, and p99 is rank 99
	serve(e, 0, 0, latencies...)
	serve(e, 10*time.Second, 1, 1*ms)
	wantWeights(t, e, 0.5, 0.5)
	latencies[9] = 100 * ms
	serve(e, 10*time.Second, 0, latencies...)
	serve(e, 20*time.Second, 1, 1*ms)
	wantWeights(t, e, 0.55/1.05, 0.5/1.05)
}

func TestCakeKeepsWeightsAboveTheFloor(t *testing.T) {
	e := mustNew(t, cakeOf(Workload{Name: "a", SLO: Span(20 * ms), Weight: 97}, Workload{Name: "b"},
		Workload{Name: "c", Weight: 2}))
	// 0.97, 0.01, 0.02: both lifted to 0.05.
	wantWeights(t, e, 0.9, 0.05, 0.05)
	for second := range 20 {
		serve(e, time.Duration(second)*time.Second, 0, 1*ms)
	}
	sum := 0.0
	for _, s := range e.Stats() {
		sum += s.Weight
		if s.Weight < 0.05-1e-12 {
			t.Errorf("a weight is %g", s.Weight)
		}
	}
	if math.Abs(sum-1) > 1e-12 {
		t.Errorf("the weights sum to %g", sum)
	}
}

func TestCakeKeepsAdaptedWeightsThroughAChange(t *testing.T) {
	p := cakeOf(Workload{Name: "a", SLO: Span(20 * ms)}, Workload{Name: "copy"})
	e := mustNew(t, p)
	serve(e, 0, 0, 40*ms)
	serve(e, time.Second, 1, 1*ms)
	p.Depth = 7
	if err := e.SetParameters(1100*ms, p); err != nil {
		t.Fatal(err)
	}
	wantWeights(t, e, 0.55/1.05, 0.5/1.05)
}

func TestCakeKeepsBoundedSamples(t *testing.T) {
	e := mustNew(t, cakeOf(Workload{Name: "a", SLO: Span(20 * ms)}, Workload{Name: "copy"}))
	s := e.policy.(*share)
	for i := range 1_000_000 {
		s.sample(e.flows[0], time.Duration(i))
	}
	kept := e.flows[0].share.samples
	if len(kept) > maxSamples || len(kept) < maxSamples/4 {
		t.Errorf("%d samples are kept", len(kept))
	}
	if p := percentile(kept, 0.99); p < 985_000 || p > 995_000 {
		t.Errorf("p99 of 0 to 999,999 is %d", p)
	}
}
