package sim

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestBucketsTileTheNumbers(t *testing.T) {
	next := int64(0)
	for i := 0; next < math.MaxInt64; i++ {
		low, high := bounds(i)
		if low != next || high <= low {
			t.Fatalf("bucket %d is %d to %d, the one before ended at %d", i, low, high, next)
		}
		for _, v := range []int64{low, low + (high-low)/2, high - 1} {
			if bucketOf(time.Duration(v)) != i {
				t.Fatalf("%d is in bucket %d, not %d", v, bucketOf(time.Duration(v)), i)
			}
		}
		if low >= 64 && float64(high-low) > float64(low)/63.9 {
			t.Fatalf("bucket %d to %d is too wide", low, high)
		}
		next = high
	}
}

func TestHistogramAgainstTheLatenciesThemselves(t *testing.T) {
	s := NewStream(1, "histogram")
	var h, a, b Histogram
	values := make([]time.Duration, 20000)
	sum := time.Duration(0)
	for i := range values {
		values[i] = nanoseconds(s.Exp() * 1e7)
		sum += values[i]
		h.Add(values[i])
		if i%3 == 0 {
			a.Add(values[i])
		} else {
			b.Add(values[i])
		}
	}
	a.Merge(&b)
	a.Merge(&Histogram{})
	slices.Sort(values)
	for _, q := range []float64{0, 0.01, 0.5, 0.95, 0.999, 1} {
		exact := values[max(0, int(math.Ceil(q*float64(len(values))))-1)]
		got := h.Quantile(q)
		if math.Abs(float64(got-exact)) > float64(exact)/64+1 {
			t.Errorf("quantile %g: %v, exactly %v", q, got, exact)
		}
		if a.Quantile(q) != got {
			t.Errorf("quantile %g of the merged one: %v, not %v", q, a.Quantile(q), got)
		}
	}
	var total uint64
	for i, bucket := range h.Buckets() {
		total += bucket.Count
		if bucket.Count == 0 || a.Buckets()[i] != bucket {
			t.Errorf("bucket %+v", bucket)
		}
	}
	if total != 20000 || h.Count() != 20000 || h.Sum() != sum || a.Sum() != sum ||
		h.Min() != values[0] || a.Min() != values[0] || h.Max() != values[len(values)-1] {
		t.Errorf("count %d, %d in buckets, sum %v (%v), from %v to %v", h.Count(), total, h.Sum(),
			sum, h.Min(), h.Max())
	}
	h.Reset()
	if h.Count() != 0 || len(h.Buckets()) != 0 || h.Quantile(0.5) != 0 || !math.IsNaN(h.Mean()) {
		t.Error("a reset histogram holds something")
	}
}
