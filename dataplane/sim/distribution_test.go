package sim

import (
	"fmt"
	"math"
	"time"
)

// Distribution is a distribution of a service, think or interarrival time.
type Distribution interface {
	// Draw returns the next value from a stream. It is never negative.
	Draw(s *Stream) time.Duration
	// Moments returns E[X] in seconds and E[X^2] in seconds squared.
	Moments() (mean, second float64)
}

// Constant is always the same time.
type Constant time.Duration

// Exponential has the given mean; Poisson processes have such interarrival times.
type Exponential time.Duration

// Uniform is uniform between Low and High.
type Uniform struct{ Low, High time.Duration }

// HyperExponential is a mixture of two exponentials with a squared coefficient of variation above
// 1: bursty arrivals, or a few long services. Use NewHyperExponential.
type HyperExponential struct {
	p           float64 // probability of the first
	first, rest float64 // their means in nanoseconds
}

// Draw implements Distribution.
func (c Constant) Draw(*Stream) time.Duration { return time.Duration(c) }

// Draw implements Distribution.
func (e Exponential) Draw(s *Stream) time.Duration { return nanoseconds(s.Exp() * float64(e)) }

// Draw implements Distribution.
func (u Uniform) Draw(s *Stream) time.Duration {
	return u.Low + nanoseconds(s.Uniform()*float64(u.High-u.Low))
}

// Draw implements Distribution.
func (h HyperExponential) Draw(s *Stream) time.Duration {
	mean := h.rest
	if s.Bernoulli(h.p) {
		mean = h.first
	}
	return nanoseconds(s.Exp() * mean)
}

// Moments implements Distribution.
func (c Constant) Moments() (mean, second float64) {
	mean = time.Duration(c).Seconds()
	return mean, mean * mean
}

// Moments implements Distribution.
func (e Exponential) Moments() (mean, second float64) {
	mean = time.Duration(e).Seconds()
	return mean, 2 * mean * mean
}

// Moments implements Distribution.
func (u Uniform) Moments() (mean, second float64) {
	low, high := u.Low.Seconds(), u.High.Seconds()
	return (low + high) / 2, (float64(low*low) + float64(low*high) + float64(high*high)) / 3
}

// Moments implements Distribution.
func (h HyperExponential) Moments() (mean, second float64) {
	a, b := h.first/1e9, h.rest/1e9
	mean = float64(h.p*a) + float64((1-h.p)*b)
	second = 2 * (float64(h.p*a*a) + float64((1-h.p)*b*b))
	return mean, second
}

// NewHyperExponential returns a distribution with the given mean and squared coefficient of
// variation (1 or more), and balanced means: both exponentials contribute half of the mean.
func NewHyperExponential(mean time.Duration, scv float64) (HyperExponential, error) {
	if mean < 0 || !(scv >= 1 && scv <= 1e6) {
		return HyperExponential{}, fmt.Errorf(
			"a hyperexponential of mean %v and squared coefficient of variation %g: allowed are "+
				"a mean of 0 or more and 1 to 1e6", mean, scv)
	}
	p := float64((1 + math.Sqrt((scv-1)/(scv+1))) / 2)
	half := float64(mean) / 2
	return HyperExponential{p: p, first: half / p, rest: half / (1 - p)}, nil
}
