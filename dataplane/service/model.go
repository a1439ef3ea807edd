// Package service is the service-time model of Hotbed's queue disk: the cost of one request, and
// its start and end on a first-come-first-served disk.
//
// The package has no clock and does no I/O. The FUSE disk drives it on the wall clock, a simulator
// on virtual time, so both agree on every request.
package service

import (
	"fmt"
	"math"
	"time"
)

// The seek curve is positioning(d) = mean * (SettleShare + SqrtFactor * sqrt(d)) for a relative
// distance 0 < d <= 1. It is the square-root shape of a real arm's seek curve plus a share that
// does not depend on the distance (settling, rotation). The distance of two independent uniform
// offsets has density 2*(1-d), so E[sqrt(d)] = 8/15. Then SettleShare + SqrtFactor*8/15 = 1 makes
// the mean over random offsets exactly PositioningMean.
const (
	// SettleShare is the part of the mean positioning time that every non-sequential request pays.
	SettleShare = 0.4
	// MeanRootDistance is E[sqrt(|x-y|)] for x and y independent and uniform on [0, 1].
	MeanRootDistance = 8.0 / 15.0
	// SqrtFactor scales the square root of the relative distance.
	SqrtFactor = (1 - SettleShare) / MeanRootDistance
	// meanDistance is E[|x-y|], the second moment of the root distance.
	meanDistance = 1.0 / 3.0
)

// Limits of a model. They keep every time well within an int64 of nanoseconds.
const (
	MaxPositioning = 10 * time.Second
	MinBandwidth   = 1e3     // bytes per second
	MaxBandwidth   = 1e12    // bytes per second
	MaxSize        = 1 << 50 // bytes
)

// Model is the cost of one request on an idle disk. The zero value is not valid.
type Model struct {
	// PositioningMean is the mean positioning time over uniformly random offsets; 0 is allowed.
	PositioningMean time.Duration
	// Bandwidth is the transfer rate in bytes per second.
	Bandwidth float64
	// Size is the capacity in bytes, which is the longest distance a head can travel.
	Size int64
}

// Validate returns an error of one sentence for the first value outside its range.
func (m Model) Validate() error {
	switch {
	case m.PositioningMean < 0 || m.PositioningMean > MaxPositioning:
		return fmt.Errorf("the mean positioning time is %v, allowed is 0 to %v",
			m.PositioningMean, MaxPositioning)
	case !(m.Bandwidth >= MinBandwidth && m.Bandwidth <= MaxBandwidth): // also refuses NaN
		return fmt.Errorf("the bandwidth is %g bytes/s, allowed is %g to %g bytes/s",
			m.Bandwidth, MinBandwidth, MaxBandwidth)
	case m.Size <= 0 || m.Size > MaxSize:
		return fmt.Errorf("the size is %d bytes, allowed is 1 to %d bytes", m.Size, int64(MaxSize))
	}
	return nil
}

// Positioning returns the time to move from byte offset `from` to byte offset `to`: 0 if the
// request continues at the end of the previous one, the seek curve otherwise.
func (m Model) Positioning(from, to int64) time.Duration {
	if from == to {
		return 0
	}
	d := math.Min(math.Abs(float64(to)-float64(from))/float64(m.Size), 1)
	// The conversion prevents a fused multiply-add, which would round differently on some machines.
	return time.Duration(math.Round(
		float64(m.PositioningMean) * (SettleShare + float64(SqrtFactor*math.Sqrt(d)))))
}

// Transfer returns the time to move n bytes at the model's bandwidth.
func (m Model) Transfer(n int64) time.Duration {
	return time.Duration(math.Round(float64(n) / m.Bandwidth * float64(time.Second)))
}

// Service returns the whole service time of n bytes at offset `to` with the head at `from`.
func (m Model) Service(from, to, n int64) time.Duration {
	return m.Positioning(from, to) + m.Transfer(n)
}

// RandomMoments returns E[S] in seconds and E[S^2] in seconds squared for requests of n bytes at
// independent, uniformly random offsets. n must be small against the size.
func (m Model) RandomMoments(n int64) (mean, second float64) {
	pos := m.PositioningMean.Seconds()
	posSecond := float64(pos * pos * (SettleShare*SettleShare +
		2*SettleShare*SqrtFactor*MeanRootDistance + SqrtFactor*SqrtFactor*meanDistance))
	t := float64(n) / m.Bandwidth
	return pos + t, posSecond + float64(2*pos*t) + float64(t*t)
}
