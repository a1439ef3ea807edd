package service

import (
	"math"
	"math/rand/v2"
	"time"
)

// PollaczekKhinchine returns the mean wait in queue (seconds) of an M/G/1 queue with Poisson
// arrivals of rate lambda (1/s) and service moments E[S] (s) and E[S^2] (s^2):
// W = lambda * E[S^2] / (2 * (1 - rho)), rho = lambda * E[S]. It is +Inf for rho >= 1.
func PollaczekKhinchine(lambda, mean, second float64) float64 {
	rho := float64(lambda * mean)
	if rho >= 1 {
		return math.Inf(1)
	}
	return lambda * second / (2 * (1 - rho))
}

// Request is one read or write of an open-loop load.
type Request struct {
	At     time.Duration // intended arrival
	Offset int64
	Bytes  int64
}

// Poisson draws n random reads of this many bytes, with arrivals that offer the model the given load.
func Poisson(m Model, load float64, n int, bytes int64, rng *rand.Rand) []Request {
	mean, _ := m.RandomMoments(bytes)
	requests := make([]Request, n)
	at := 0.0
	for i := range requests {
		at += rng.ExpFloat64() * mean / load
		requests[i] = Request{At: time.Duration(at * float64(time.Second)), Offset: rng.Int64N(m.Size/bytes) * bytes, Bytes: bytes}
	}
	return requests
}

// Waits returns the wait in queue of each request on a disk of this model (Lindley's recursion).
// The order of requests is the order of service.
func Waits(m Model, requests []Request) []time.Duration {
	s := NewServer(m, 0)
	waits := make([]time.Duration, len(requests))
	for i, r := range requests {
		start, _ := s.Arrive(r.At, r.Offset, r.Bytes)
		waits[i] = start - r.At
	}
	return waits
}
