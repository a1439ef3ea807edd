package replay

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longest is the longest time that a histogram holds; what is longer counts as that.
const longest = int64(time.Hour)

// times is an HDR histogram of nanoseconds with three digits.
type times struct{ *hdrhistogram.Histogram }

func newTimes() times { return times{hdrhistogram.New(1, longest, 3)} }

func (t times) add(d time.Duration) { _ = t.RecordValue(min(max(int64(d), 1), longest)) }

// Latencies tells a histogram: seconds, and buckets as [from, below, count] in nanoseconds, as rows of
// latency.parquet.
type Latencies struct {
	Count   int64      `json:"count"`
	Mean    float64    `json:"mean"`
	P50     float64    `json:"p50"`
	P90     float64    `json:"p90"`
	P95     float64    `json:"p95"`
	P99     float64    `json:"p99"`
	P999    float64    `json:"p99_9"`
	P9999   float64    `json:"p99_99"`
	Max     float64    `json:"max"`
	Buckets [][3]int64 `json:"buckets,omitempty"`
}

func (t times) tell(buckets bool) Latencies {
	if t.TotalCount() == 0 {
		return Latencies{}
	}
	at := func(q float64) float64 { return float64(t.ValueAtQuantile(q)) / 1e9 }
	l := Latencies{Count: t.TotalCount(), Mean: t.Mean() / 1e9, P50: at(50), P90: at(90), P95: at(95),
		P99: at(99), P999: at(99.9), P9999: at(99.99), Max: float64(t.Max()) / 1e9}
	if buckets {
		for _, bar := range t.Distribution() {
			if bar.Count > 0 {
				l.Buckets = append(l.Buckets, [3]int64{bar.From, bar.To + 1, bar.Count})
			}
		}
	}
	return l
}

// Part is what became of the requests of the whole trace, or of a part of it.
type Part struct {
	Requests int64 `json:"requests"`
	// Misses are the requests that took longer than the SLO, counted one by one; null without one.
	Misses *int64 `json:"slo_misses"`
	// Bytes are those of the requests that were answered.
	Bytes  int64     `json:"bytes"`
	All    Latencies `json:"latency"`
	Reads  Latencies `json:"reads"`
	Writes Latencies `json:"writes"`
	// Unanswered are those that had no reply when waiting for replies ended. They missed the SLO, and
	// are among the others with the time that they had waited: they took longer.
	Unanswered Latencies `json:"unanswered"`
}

// Result is what a replay printed. Times are in seconds.
type Result struct {
	Schema int    `json:"schema"`
	Mode   string `json:"mode"` // open or closed
	// Whole is all requests; SecondHalf those that arrived in the second half of the trace's time, in
	// a closed loop those that were done in it.
	Whole      Part `json:"whole"`
	SecondHalf Part `json:"second_half"`
	// Timeline tells when requests arrived and missed the SLO (figure 1).
	Timeline Timeline `json:"timeline"`
	// SendLag is from when a request was due until it was issued: the replayer's own lateness.
	// Above 1 ms at p99 the run is spoiled. A request that was issued and waits for the connection
	// to take it is not late: its wait is a part of its latency.
	SendLag Latencies `json:"send_lag"`
	Spoiled bool      `json:"spoiled"`
	// MaxBacklog is how many requests waited for the connection at most.
	MaxBacklog int `json:"max_backlog"`
	// MaxOutstanding is how many requests were issued and not complete at most.
	MaxOutstanding int              `json:"max_outstanding"`
	Bytes          int64            `json:"bytes"`
	Elapsed        float64          `json:"elapsed"` // from the first request's time to the last's end
	Errors         map[string]int64 `json:"errors"`
	Trace          TraceReport      `json:"trace"`
	Started        float64          `json:"started"` // Unix time of the first request's time
}

// worstLag is the lag at p99 above which a run is spoiled.
const worstLag = 1e-3

// tally counts a part.
type tally struct {
	reads, writes, unanswered times
	misses, bytes             int64
}

func newTally() tally {
	return tally{reads: newTimes(), writes: newTimes(), unanswered: newTimes()}
}

func (t *tally) add(r *request, latency time.Duration, missed, answered bool) {
	if r.Read {
		t.reads.add(latency)
	} else {
		t.writes.add(latency)
	}
	if missed {
		t.misses++
	}
	if answered {
		t.bytes += r.Size
	} else {
		t.unanswered.add(latency)
	}
}

func (t *tally) tell(slo time.Duration) Part {
	all := newTimes()
	all.Merge(t.reads.Histogram)
	all.Merge(t.writes.Histogram)
	p := Part{Requests: all.TotalCount(), Bytes: t.bytes, All: all.tell(true), Reads: t.reads.tell(false),
		Writes: t.writes.tell(false), Unanswered: t.unanswered.tell(true)}
	if slo > 0 {
		p.Misses = &t.misses
	}
	return p
}
