package sim

import (
	"fmt"
	"math"
)

// LogNormal is a positive random factor of mean 1, to vary service times.
type LogNormal struct{ mean, deviation float64 } // of its logarithm

// NewLogNormal returns a factor with a coefficient of variation of 0 to 10; 0 is always 1.
func NewLogNormal(cv float64) (LogNormal, error) {
	if !(cv >= 0 && cv <= 10) {
		return LogNormal{}, fmt.Errorf(
			"a lognormal factor with coefficient of variation %g: allowed is 0 to 10", cv)
	}
	variance := ln(1 + float64(cv*cv))
	return LogNormal{mean: -variance / 2, deviation: math.Sqrt(variance)}, nil
}

// Factor returns the next value from a stream.
func (l LogNormal) Factor(s *Stream) float64 {
	if l.deviation == 0 {
		return 1
	}
	return exp(l.mean + float64(l.deviation*s.Normal()))
}
