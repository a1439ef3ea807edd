package enforcer

import (
	"math"
	"slices"
	"time"
)

// maxSamples limits cake's samples of an interval. Beyond it every second latency is dropped, then
// every second of the rest, and so on.
const maxSamples = 1 << 14

// adoptCake starts cake, or changes its parameters.
func (s *share) adoptCake(now time.Duration, c CakeParameters) {
	if s.cake == nil {
		s.next = now + time.Duration(c.Interval)
	}
	s.cake = &c
	s.next = min(s.next, now+time.Duration(c.Interval))
	sum := 0.0
	for _, f := range s.flows[:s.workers] {
		sum += f.spec.Weight
	}
	for i, f := range s.flows {
		if i >= s.workers {
			f.share.weight = c.Floor // removed; its remaining requests wait
		} else if f.share.given != f.spec.Weight {
			f.share.weight, f.share.given = f.spec.Weight/sum, f.spec.Weight
		}
	}
	s.normalise()
}

// sample records the latency of a finished request.
func (s *share) sample(f *flow, latency time.Duration) {
	if s.cake == nil || f.spec.SLO == 0 {
		return
	}
	state := &f.share
	state.every = max(state.every, 1)
	if state.seen++; state.seen%state.every != 0 {
		return
	}
	state.samples = append(state.samples, latency)
	if len(state.samples) == maxSamples {
		for i := range maxSamples / 2 {
			state.samples[i] = state.samples[2*i+1]
		}
		state.samples = state.samples[:maxSamples/2]
		state.every *= 2
	}
}

// adapt changes the weights at the end of an interval. Without a finished request or an SLO, a
// workload keeps its weight, except for the normalisation.
func (s *share) adapt(now time.Duration) {
	if s.cake == nil || now < s.next {
		return
	}
	interval := time.Duration(s.cake.Interval)
	s.next += interval * (1 + (now-s.next)/interval)
	for _, f := range s.flows[:s.workers] {
		state := &f.share
		if len(state.samples) > 0 {
			perf := float64(f.spec.SLO) / float64(max(percentile(state.samples, s.cake.Percentile), 1))
			switch {
			case perf < 1:
				state.weight *= math.Min(1+s.cake.Step, 1/perf)
			case perf > s.cake.Upper:
				state.weight *= math.Max(1-s.cake.Step, s.cake.Upper/perf)
			}
		}
		state.samples, state.every, state.seen = state.samples[:0], 1, 0
	}
	s.normalise()
}

// percentile returns the value of rank ceil(q n), and sorts the values.
func percentile(values []time.Duration, q float64) time.Duration {
	slices.Sort(values)
	rank := int(math.Ceil(q * float64(len(values))))
	return values[min(max(rank, 1), len(values))-1]
}

// normalise scales the workloads' weights to a sum of 1 with none below the floor. Weights below
// are raised to the floor, and the others reduced in proportion.
func (s *share) normalise() {
	flows := s.flows[:s.workers]
	lifted := make([]bool, len(flows))
	for {
		sum, left := 0.0, 1.0
		for i, f := range flows {
			if lifted[i] {
				left -= s.cake.Floor
			} else {
				sum += f.share.weight
			}
		}
		again := false
		for i, f := range flows {
			if lifted[i] {
				continue
			}
			f.share.weight *= left / sum
			if f.share.weight < s.cake.Floor {
				f.share.weight, lifted[i], again = s.cake.Floor, true, true
			}
		}
		if !again {
			return
		}
	}
}
