package replay

import "time"

const (
	firstBin = time.Second
	mostBins = 1 << 12
)

// Bin counts the requests that arrived in an interval.
type Bin struct {
	Requests int64   `json:"requests"`
	Misses   int64   `json:"slo_misses"`
	Max      float64 `json:"max"` // latency, s
}

// Timeline is a series of equal intervals from the first request's time, by time of arrival.
type Timeline struct {
	Seconds float64 `json:"bin_s"`
	Bins    []Bin   `json:"bins"`
}

// timeline has bins of a second, or wider ones if a long run would give too many bins.
type timeline struct {
	width time.Duration
	bins  []Bin
}

func newTimeline() timeline { return timeline{width: firstBin} }

func (t *timeline) add(at, latency time.Duration, missed bool) {
	for at/t.width >= mostBins {
		t.widen()
	}
	for at/t.width >= time.Duration(len(t.bins)) {
		t.bins = append(t.bins, Bin{})
	}
	b := &t.bins[at/t.width]
	b.Requests++
	if missed {
		b.Misses++
	}
	b.Max = max(b.Max, latency.Seconds())
}

// widen merges pairs of bins.
func (t *timeline) widen() {
	t.width *= 2
	wide := make([]Bin, (len(t.bins)+1)/2)
	for i, b := range t.bins {
		w := &wide[i/2]
		w.Requests += b.Requests
		w.Misses += b.Misses
		w.Max = max(w.Max, b.Max)
	}
	t.bins = wide
}

func (t *timeline) tell() Timeline { return Timeline{t.width.Seconds(), t.bins} }
