package enforcer

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"hotbed/dataplane/tests/must"
)

func cakeOf(workloads ...Workload) Parameters {
	return Parameters{Policy: Cake, Depth: 1, Workloads: workloads,
		Cake: CakeParameters{Interval: Span(time.Second), Upper: 1.5, Floor: 0.05}}
}

func wantWeights(t *testing.T, e *Enforcer, want ...float64) {
	t.Helper()
	for i, s := range e.Stats() {
		if math.Abs(s.Weight-want[i]) > 1e-9 {
			t.Errorf("weight %d is %g, want %g", i, s.Weight, want[i])
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

func TestCakeKeepsAdaptedWeightsThroughAChange(t *testing.T) {
	p := cakeOf(Workload{Name: "a", SLO: Span(20 * ms)}, Workload{Name: "copy"})
	e := mustNew(t, p)
	serve(e, 0, 0, 40*ms)
	serve(e, time.Second, 1, 1*ms)
	p.Depth = 7
	must.Succeed(t, e.SetParameters(1100*ms, p))
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

// cakeByTheText is the controller of section 5.3 with the control parameters of Cake: a weight for
// each workload; at the end of an interval perf = SLO / p99. Below 1 the weight grows to 1 / perf
// times itself, by a tenth at most. Above the upper bound it shrinks to upper / perf times itself,
// by a tenth at most. A workload without requests or without an SLO keeps its weight.
func cakeByTheText(weights []float64, slos []time.Duration, latencies [][]time.Duration, upper, floor float64) []float64 {
	changed := slices.Clone(weights)
	for i, own := range latencies {
		if slos[i] == 0 || len(own) == 0 {
			continue
		}
		slower := slices.Sorted(slices.Values(own))
		allowed := len(own) / 100 // requests that may be slower than the 99th percentile
		perf := slos[i].Seconds() / slower[len(own)-1-allowed].Seconds()
		if perf < 1 {
			changed[i] *= min(1/perf, 1.1)
		}
		if perf > upper {
			changed[i] *= max(upper/perf, 0.9)
		}
	}
	// Shares of 1, none below the floor: the factor at which max(floor, factor x weight) sum to 1.
	share := func(factor float64) (all []float64, sum float64) {
		for _, w := range changed {
			all = append(all, max(floor, factor*w))
			sum += all[len(all)-1]
		}
		return all, sum
	}
	low, high := 0.0, 1e6
	for range 200 {
		middle := (low + high) / 2
		if _, sum := share(middle); sum < 1 {
			low = middle
		} else {
			high = middle
		}
	}
	all, _ := share(high)
	return all
}

func TestCakeIsTheControllerOfTheText(t *testing.T) {
	each(t, func(t *testing.T, random *rand.Rand) {
		n := 2 + random.IntN(3)
		upper, floor := 1+3*random.Float64(), 0.3*random.Float64()/float64(n)+1e-3
		p := Parameters{Policy: Cake, Depth: 1, Cake: CakeParameters{Upper: upper, Floor: floor}}
		slos, weights := make([]time.Duration, n), make([]float64, n)
		for i := range n {
			weights[i] = math.Exp(2 * random.NormFloat64())
			if i > 0 { // the first workload is a copy without an SLO
				slos[i] = time.Duration(1+random.IntN(40)) * ms
			}
			p.Workloads = append(p.Workloads, Workload{Name: string(rune('a' + i)), SLO: Span(slos[i]), Weight: weights[i]})
		}
		e := mustNew(t, p)
		weights = cakeByTheText(weights, slos, make([][]time.Duration, n), upper, floor) // before any request
		wantWeights(t, e, weights...)
		for interval := range 20 {
			now, latencies := time.Duration(interval)*10*time.Second, make([][]time.Duration, n)
			for i := range n {
				for range random.IntN(2) * random.IntN(150) {
					latencies[i] = append(latencies[i], time.Duration(1+random.IntN(10_000_000)))
				}
				serve(e, now, i, latencies[i]...)
				now += 2 * time.Second
			}
			weights = cakeByTheText(weights, slos, latencies, upper, floor)
			e.Next(time.Duration(interval+1) * 10 * time.Second)
			serve(e, time.Duration(interval+1)*10*time.Second, 0, 1)
			wantWeights(t, e, weights...)
		}
	})
}
