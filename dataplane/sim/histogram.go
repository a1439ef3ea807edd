package sim

import (
	"math"
	"math/bits"
	"time"
)

// groupBits is the resolution of a Histogram: 64 buckets per power of two, as in fio's.
const groupBits = 6

// Histogram counts latencies in buckets with widths of at most 1/64 of their values, plus the exact
// sum and extremes. The zero value is empty.
type Histogram struct {
	counts []uint64 // up to the largest bucket seen
	n      uint64
	sum    time.Duration
	least  time.Duration
	most   time.Duration
}

// Bucket counts latencies from Low up to below High nanoseconds: a row of latency.parquet.
type Bucket struct {
	Low, High int64
	Count     uint64
}

// bucketOf returns v's bucket index: exact below 64 ns, then 64 buckets per power of two.
func bucketOf(v time.Duration) int {
	group := max(0, bits.Len64(uint64(v))-groupBits-1)
	return group<<groupBits + int(v>>group)
}

// bounds returns the lowest value of a bucket and the first value above it.
func bounds(i int) (low, high int64) {
	group := max(0, i>>groupBits-1)
	low = int64(i-group<<groupBits) << group
	if high = low + 1<<group; high < low {
		high = math.MaxInt64
	}
	return low, high
}

// Add counts one latency, which must not be negative.
func (h *Histogram) Add(v time.Duration) {
	i := bucketOf(v)
	if i >= len(h.counts) {
		h.counts = append(h.counts, make([]uint64, i+1-len(h.counts))...)
	}
	h.counts[i]++
	if h.n == 0 || v < h.least {
		h.least = v
	}
	h.most = max(h.most, v)
	h.n++
	h.sum += v
}

// Merge adds another histogram's latencies.
func (h *Histogram) Merge(o *Histogram) {
	if o.n == 0 {
		return
	}
	if len(o.counts) > len(h.counts) {
		h.counts = append(h.counts, make([]uint64, len(o.counts)-len(h.counts))...)
	}
	for i, c := range o.counts {
		h.counts[i] += c
	}
	if h.n == 0 || o.least < h.least {
		h.least = o.least
	}
	h.most = max(h.most, o.most)
	h.n += o.n
	h.sum += o.sum
}

// Reset empties the histogram and keeps its memory.
func (h *Histogram) Reset() {
	clear(h.counts)
	*h = Histogram{counts: h.counts}
}

// Count returns the number of latencies.
func (h *Histogram) Count() uint64 { return h.n }

// Sum returns the exact sum of the latencies.
func (h *Histogram) Sum() time.Duration { return h.sum }

// Mean returns the mean in seconds, NaN if empty.
func (h *Histogram) Mean() float64 { return h.sum.Seconds() / float64(h.n) }

// Min returns the smallest latency, 0 if empty.
func (h *Histogram) Min() time.Duration { return h.least }

// Max returns the largest latency, 0 if empty.
func (h *Histogram) Max() time.Duration { return h.most }

// Quantile returns the middle of the bucket with the latency of rank ceil(q*n), clipped to the
// extremes; 0 if empty.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(h.n)))
	rank = min(max(rank, 1), h.n)
	var seen uint64
	for i, c := range h.counts {
		if seen += c; seen >= rank && c > 0 {
			low, high := bounds(i)
			return min(max(time.Duration(low+(high-low)/2), h.least), h.most)
		}
	}
	return 0
}

// Buckets returns the non-empty buckets, in order.
func (h *Histogram) Buckets() []Bucket {
	var out []Bucket
	for i, c := range h.counts {
		if c > 0 {
			low, high := bounds(i)
			out = append(out, Bucket{low, high, c})
		}
	}
	return out
}
