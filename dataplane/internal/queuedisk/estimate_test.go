package queuedisk

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"hotbed/dataplane/service"
)

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
