package sim

import (
	"math"
	"math/bits"
	"time"
)

// groupBits is the resolution of a Histogram: 64 buckets to a power of two, as in fio's.
const groupBits = 6

// Histogram counts latencies in buckets at most 1/64 wide of what they hold, plus their exact sum
// and extremes. The zero value is empty.
type Histogram struct {
	counts []uint64 // up to the largest bucket seen
	n      uint64
	sum    time.Duration
	least  time.Duration
	most   time.Duration
}

// Bucket is Count latencies of Low to below High nanoseconds: a row of latency.parquet.
type Bucket struct {
	Low, High int64
	Count     uint64
}

// bucketOf is the index of the bucket of v: exact below 64 ns, then 64 to a power of two.
func bucketOf(v time.Duration) int {
	group := max(0, bits.Len64(uint64(v))-groupBits-1)
	return group<<groupBits + int(v>>group)
}

// bounds are the lowest value of a bucket and the first above it.
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

// Merge adds what another histogram holds.
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

// Reset empties it and keeps its memory.
func (h *Histogram) Reset() {
	clear(h.counts)
	*h = Histogram{counts: h.counts}
}

// Count is how many latencies it holds.
func (h *Histogram) Count() uint64 { return h.n }

// Sum is their exact sum.
func (h *Histogram) Sum() time.Duration { return h.sum }

// Mean is their mean in seconds, NaN when there are none.
func (h *Histogram) Mean() float64 { return h.sum.Seconds() / float64(h.n) }

// Min and Max are the exact extremes, 0 when there are none.
func (h *Histogram) Min() time.Duration { return h.least }

// Max is the largest latency.
func (h *Histogram) Max() time.Duration { return h.most }

// Quantile is the middle of the bucket in which the latency of rank ceil(q*n) lies, within the
// extremes; 0 when there are none.
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

// Buckets are those that hold something, in order.
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
