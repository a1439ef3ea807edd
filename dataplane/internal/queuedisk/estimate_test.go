package queuedisk

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"hotbed/dataplane/service"
)

func checkConfig() CheckConfig {
	return CheckConfig{
		Model: service.Model{PositioningMean: 4 * time.Millisecond, Bandwidth: 60e6, Size: 1 << 32},
		Load:  0.8, Requests: 8000, Seed: 1,
	}
}

// modelResponses returns the responses of a perfect disk plus a constant delay.
func modelResponses(c CheckConfig, requests []service.Request,
	extra time.Duration) []time.Duration {
	s := service.NewServer(c.Model, 0)
	out := make([]time.Duration, len(requests))
	for i, r := range requests {
		_, end := s.Arrive(r.At, r.Offset, r.Bytes)
		out[i] = end - r.At + extra
	}
	return out
}

func TestAPerfectDiskHasNoError(t *testing.T) {
	c := checkConfig()
	requests := Poisson(c.Model, c.Load, c.Requests, rand.New(rand.NewPCG(c.Seed, 1)))
	r := estimate(c, requests, modelResponses(c, requests, 0))
	if !r.Within || math.Abs(r.RelativeError) > 1e-6 {
		t.Errorf("relative error %g", r.RelativeError)
	}
	if math.Abs(r.MeasuredWaitS-r.ModelledWaitS) > 1e-9 {
		t.Errorf("measured %g, modelled %g", r.MeasuredWaitS, r.ModelledWaitS)
	}
}

func TestADiskOfAnotherSpeedIsFound(t *testing.T) {
	c := checkConfig()
	requests := Poisson(c.Model, c.Load, c.Requests, rand.New(rand.NewPCG(c.Seed, 1)))
	for name, factor := range map[string]float64{"4 % slower": 1.04, "4 % faster": 0.96} {
		other := c
		other.Model.PositioningMean = time.Duration(factor * float64(c.Model.PositioningMean))
		if r := estimate(c, requests, modelResponses(other, requests, 0)); r.Within {
			t.Errorf("%s: relative error %g passes", name, r.RelativeError)
		}
	}
	// A disk that serves all requests at once, as a token bucket does below its limit.
	if r := estimate(c, requests, make([]time.Duration, len(requests))); r.Within {
		t.Errorf("no queue at all: relative error %g passes", r.RelativeError)
	}
	if r := estimate(c, requests, modelResponses(c, requests, time.Millisecond)); r.Within {
		t.Errorf("1 ms late: relative error %g passes", r.RelativeError)
	}
}
