// Package estimator estimates a request's cost (PriorityMeister, section 4.2): device seconds by
// its profile, bytes on the network. It reads the same profiles as controllers/prioritymeister and
// gives the same numbers; docs/prioritymeister.md describes the format.
package estimator

import (
	"math"
	"sort"
)

// NetworkCost gives a request's bytes on the wire: constant + factor * size, with one pair for the
// direction of the data and one for the opposite direction.
type NetworkCost struct {
	DataConstant, DataFactor, OtherConstant, OtherFactor float64
}

// DefaultNetwork is the network cost of a profile without a network block.
var DefaultNetwork = NetworkCost{200, 1.1, 200, 0.025}

// In returns the bytes towards the server: a write carries its data.
func (c NetworkCost) In(read bool, size int64) float64 { return c.bytes(!read, size) }

// Out returns the bytes from the server: a read's answer carries its data.
func (c NetworkCost) Out(read bool, size int64) float64 { return c.bytes(read, size) }

func (c NetworkCost) bytes(data bool, size int64) float64 {
	if data {
		return c.DataConstant + float64(c.DataFactor*float64(size))
	}
	return c.OtherConstant + float64(c.OtherFactor*float64(size))
}

// Profile is a profile of a device and its network.
type Profile struct {
	Network NetworkCost
	// Overhead is the work of every request outside the device, in seconds.
	Overhead float64
	device   device
}

// NeedsOffsets reports whether work depends on offsets; every request must then give one.
func (p *Profile) NeedsOffsets() bool { _, ok := p.device.(*distanceProfile); return ok }

// Estimator returns a fresh estimator for one stream of requests.
func (p *Profile) Estimator() *Estimator {
	e := &Estimator{device: p.device, overhead: p.Overhead}
	if d, ok := p.device.(*distanceProfile); ok {
		e.ends = make([]int64, d.history)
		for i := range e.ends {
			e.ends[i] = -1
		}
	}
	return e
}

// Estimator remembers the positions of a stream's last requests.
type Estimator struct {
	device   device
	overhead float64
	begun    bool
	last     int64   // offset of the previous request
	ends     []int64 // end offsets of the last requests, in a ring
	oldest   int
}

// Work returns the device seconds of a request, without queueing. The offset (bytes, not negative)
// is used only if the profile needs it.
func (e *Estimator) Work(read bool, offset, size int64) float64 {
	return e.device.work(e, read, offset, size) + e.overhead
}

type device interface {
	work(e *Estimator, read bool, offset, size int64) float64
}

// sizeProfile is a device with a bandwidth (bytes/s) by kind and size.
type sizeProfile struct{ sizes, read, write []float64 }

func (p *sizeProfile) work(_ *Estimator, read bool, _, size int64) float64 {
	bandwidth := p.write
	if read {
		bandwidth = p.read
	}
	return float64(size) / interpolate(float64(size), p.sizes, bandwidth)
}

// interpolate is linear between points, and constant outside them.
func interpolate(x float64, points, values []float64) float64 {
	n := len(points)
	switch {
	case x <= points[0]:
		return values[0]
	case x >= points[n-1]:
		return values[n-1]
	}
	i := sort.SearchFloat64s(points, x) - 1 // points[i] < x <= points[i+1]
	if points[i+1] == x {
		return values[i+1]
	}
	slope := (values[i+1] - values[i]) / (points[i+1] - points[i])
	return float64(slope*(x-points[i])) + values[i]
}

// constantProfile is figure 10's less accurate estimator: one base time for all requests.
type constantProfile struct{ base, read, write float64 }

func (p *constantProfile) work(_ *Estimator, read bool, _, size int64) float64 {
	if read {
		return p.base + float64(size)/p.read
	}
	return p.base + float64(size)/p.write
}

// table holds base (seconds) and bandwidth (bytes/s) by offset and distance [o][d].
type table struct {
	offsets, distances []float64
	base, bandwidth    [][]float64
}

// at interpolates in both directions; outside the table the edge values apply.
func (t *table) at(grid [][]float64, offset, distance float64) float64 {
	row, down := between(t.offsets, offset)
	column, right := between(t.distances, distance)
	nextRow, nextColumn := min(row+1, len(t.offsets)-1), min(column+1, len(t.distances)-1)
	upper := float64(grid[row][column]*(1-right)) + float64(grid[row][nextColumn]*right)
	lower := float64(grid[nextRow][column]*(1-right)) + float64(grid[nextRow][nextColumn]*right)
	return float64(upper*(1-down)) + float64(lower*down)
}

// between returns the index of the point at or below a value, and the fraction beyond it.
func between(points []float64, value float64) (int, float64) {
	n := len(points)
	if n == 1 {
		return 0, 0
	}
	held := math.Min(math.Max(value, points[0]), points[n-1])
	above := sort.Search(n, func(i int) bool { return points[i] > held })
	i := min(max(above-1, 0), n-2)
	return i, (held - points[i]) / (points[i+1] - points[i])
}

// distanceProfile is the paper's tables: base + size / bandwidth, both by kind, offset and distance
// (offset minus the previous request's offset). A request that begins where one of the last
// `history` requests ended has base time 0. A stream's first request uses the largest distance.
type distanceProfile struct {
	read, write table
	history     int
}

func (p *distanceProfile) work(e *Estimator, read bool, offset, size int64) float64 {
	distance := math.Inf(1)
	if e.begun {
		distance = float64(offset - e.last)
	}
	sequential := false
	for _, end := range e.ends {
		sequential = sequential || end == offset
	}
	e.begun, e.last = true, offset
	e.ends[e.oldest] = offset + size
	e.oldest = (e.oldest + 1) % len(e.ends)
	t := &p.write
	if read {
		t = &p.read
	}
	base := 0.0
	if !sequential {
		base = t.at(t.base, float64(offset), distance)
	}
	return base + float64(size)/t.at(t.bandwidth, float64(offset), distance)
}
