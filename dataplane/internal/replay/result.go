package replay

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"hotbed/dataplane/internal/nfs3"
	"hotbed/dataplane/internal/sunrpc"
	"hotbed/dataplane/internal/traces"
)

// longest is the longest time that a histogram holds; longer times count as longest.
const longest = int64(time.Hour)

// times is an HDR histogram of nanoseconds with three digits.
type times struct{ *hdrhistogram.Histogram }

func newTimes() times { return times{hdrhistogram.New(1, longest, 3)} }

func (t times) add(d time.Duration) { _ = t.RecordValue(min(max(int64(d), 1), longest)) }

// Latencies describes a histogram: times in seconds, and buckets as [from, below, count] in
// nanoseconds, as rows of latency.parquet.
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

func (t times) report(buckets bool) Latencies {
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

// Part is the result of all the trace's requests, or of a part of them.
type Part struct {
	Requests int64 `json:"requests"`
	// Misses are the requests that took longer than the SLO, counted exactly; null without an SLO.
	Misses *int64 `json:"slo_misses"`
	// Bytes are the bytes of the answered requests.
	Bytes  int64     `json:"bytes"`
	All    Latencies `json:"latency"`
	Reads  Latencies `json:"reads"`
	Writes Latencies `json:"writes"`
	// Unanswered are the requests without a reply at the end of waiting. They missed the SLO. The
	// other counts include them with their waiting time, a lower bound of their latency.
	Unanswered Latencies `json:"unanswered"`
}

// Result is a replay's output. Times are in seconds.
type Result struct {
	Schema int    `json:"schema"`
	Mode   string `json:"mode"` // open or closed
	// Whole is all requests. SecondHalf is the requests that arrived (closed loop: completed) in
	// the second half of the trace's time.
	Whole      Part `json:"whole"`
	SecondHalf Part `json:"second_half"`
	// Timeline shows when requests arrived and missed the SLO (figure 1).
	Timeline Timeline `json:"timeline"`
	// SendLag is from a request's due time to its issue: the replayer's own lateness. A run with a
	// p99 above 1 ms is spoiled. An issued request that waits for the connection is not late: that
	// wait is part of its latency.
	SendLag Latencies `json:"send_lag"`
	Spoiled bool      `json:"spoiled"`
	// MaxBacklog is the maximum number of requests that waited for the connection.
	MaxBacklog int `json:"max_backlog"`
	// MaxOutstanding is the maximum number of requests issued and not complete.
	MaxOutstanding int              `json:"max_outstanding"`
	Bytes          int64            `json:"bytes"`
	Elapsed        float64          `json:"elapsed"` // first request's time to the last one's end
	Errors         map[string]int64 `json:"errors"`
	Trace          traces.Report    `json:"trace"`
	Started        float64          `json:"started"` // Unix time of the first request's time
}

// worstLag is the p99 lag above which a run is spoiled, in seconds.
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

func (t *tally) report(slo time.Duration) Part {
	all := newTimes()
	all.Merge(t.reads.Histogram)
	all.Merge(t.writes.Histogram)
	p := Part{Requests: all.TotalCount(), Bytes: t.bytes, All: all.report(true), Reads: t.reads.report(false),
		Writes: t.writes.report(false), Unanswered: t.unanswered.report(true)}
	if slo > 0 {
		p.Misses = &t.misses
	}
	return p
}

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

func (t *timeline) report() Timeline { return Timeline{t.width.Seconds(), t.bins} }

// reply handles the reply to a piece.
func (e *engine) reply(record []byte) {
	if e.over {
		return
	}
	xid, d, err := sunrpc.ParseReply(record)
	p, known := e.pieces[xid]
	if !known {
		e.result.Errors["replies to no call"]++
		return
	}
	delete(e.pieces, xid)
	switch status := nfs3.Status(d.Uint32()); {
	case err != nil:
		e.result.Errors[err.Error()]++
	case status != nfs3.OK || !d.OK():
		e.result.Errors[fmt.Sprintf("NFS status %d", status)]++
	case readCount(p.of.Read, &d) != p.count:
		e.result.Errors["fewer bytes than asked for"]++
	default:
		e.result.Bytes += int64(p.count)
	}
	if p.of.left--; p.of.left == 0 {
		e.complete(p.of)
	}
}

// readCount reads the count from the results of a READ or WRITE.
func readCount(read bool, d *sunrpc.Decoder) uint32 {
	if !read && d.Uint32() == 1 { // attributes before
		d.Fixed(24)
	}
	if d.Uint32() == 1 { // attributes (after)
		d.Fixed(84)
	}
	return d.Uint32()
}
