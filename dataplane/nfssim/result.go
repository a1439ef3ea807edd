package nfssim

import (
	"time"

	"hotbed/dataplane/sim"
)

// Latencies describes a histogram: times in seconds, and buckets as [from, below, count] in
// nanoseconds, with the keys of the replayer's results.
type Latencies struct {
	Count   uint64     `json:"count"`
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

// Part is the result of the requests of the whole replay, or of its second half.
type Part struct {
	Requests uint64 `json:"requests"`
	// Misses are the requests that took longer than the SLO, counted exactly; null without an SLO.
	Misses *uint64   `json:"slo_misses"`
	Bytes  int64     `json:"bytes"`
	All    Latencies `json:"latency"`
	Reads  Latencies `json:"reads"`
	Writes Latencies `json:"writes"`
}

// Enforced holds the counts of the device's enforcer for a workload.
type Enforced struct {
	Held         uint64  `json:"held"`
	OutOfProfile uint64  `json:"out_of_profile"`
	Work         float64 `json:"work"`   // seconds charged
	Weight       float64 `json:"weight"` // in force at the end
}

// WorkloadResult is a workload's result.
type WorkloadResult struct {
	Name       string               `json:"name"`
	Mode       string               `json:"mode"`      // open or closed
	Completed  float64              `json:"completed"` // time of its last reply
	Half       float64              `json:"half"`      // start of the second half
	LastSent   float64              `json:"last_arrival"`
	MaxBacklog int                  `json:"max_backlog"` // maximum of requests without a reply
	Whole      Part                 `json:"whole"`
	SecondHalf Part                 `json:"second_half"`
	Stages     map[string]Latencies `json:"stages"`
	Wait       Latencies            `json:"device_wait"`
	Service    Latencies            `json:"device_service"`
	Enforcer   Enforced             `json:"enforcer"`
	// Series has a row per window: its begin, requests that arrived in it, their SLO misses, and
	// their longest latency.
	Series    [][4]float64 `json:"series"`
	Malformed int          `json:"malformed"`
	FirstBad  string       `json:"first_malformed"`
}

// QueueResult is the result of a device or a link. Utilisation is up to the end of the arrivals.
type QueueResult struct {
	Name        string  `json:"name"`
	Pieces      int64   `json:"pieces"` // requests, or frames
	Cost        float64 `json:"cost"`   // seconds charged, or bytes
	Busy        float64 `json:"busy"`
	Utilisation float64 `json:"utilisation"`
	MaxQueue    int     `json:"max_queue"`
	// Lag is the longest time by which it was behind its enforcer's charges (enforcer.Service).
	Lag float64 `json:"lag"`
}

// Result is a simulation's result. Times are in seconds.
type Result struct {
	Schema    int              `json:"schema"`
	Seed      uint64           `json:"seed"`
	Length    float64          `json:"length"` // end of arrivals
	End       float64          `json:"end"`    // time of the last reply
	Events    uint64           `json:"events"`
	CPU       float64          `json:"cpu"`
	Wall      float64          `json:"wall"`
	Workloads []WorkloadResult `json:"workloads"`
	Devices   []QueueResult    `json:"devices"`
	Links     []QueueResult    `json:"links"`
}

// half holds the counts of one half of a replay.
type half struct {
	reads, writes sim.Histogram
	misses        uint64
	bytes         int64
}

// tally holds the counts of a workload.
type tally struct {
	slo, window      time.Duration
	halves           [2]half
	in, storage, out sim.Histogram
	wait, service    sim.Histogram
	series           []moment
}

type moment struct {
	requests, misses int64
	longest          time.Duration
}

func newTally(slo, window time.Duration) tally { return tally{slo: slo, window: window} }

func (t *tally) add(read, second bool, arrived, latency time.Duration, bytes int64) {
	h := &t.halves[0]
	if second {
		h = &t.halves[1]
	}
	if read {
		h.reads.Add(latency)
	} else {
		h.writes.Add(latency)
	}
	missed := t.slo > 0 && latency > t.slo
	if missed {
		h.misses++
	}
	h.bytes += bytes
	if t.window == 0 {
		return
	}
	i := int(arrived / t.window)
	for len(t.series) <= i {
		t.series = append(t.series, moment{})
	}
	m := &t.series[i]
	m.requests++
	m.longest = max(m.longest, latency)
	if missed {
		m.misses++
	}
}

// part combines halves.
func (t *tally) part(halves ...half) Part {
	var reads, writes, all sim.Histogram
	var misses uint64
	var bytes int64
	for i := range halves {
		reads.Merge(&halves[i].reads)
		writes.Merge(&halves[i].writes)
		misses += halves[i].misses
		bytes += halves[i].bytes
	}
	all.Merge(&reads)
	all.Merge(&writes)
	p := Part{Requests: all.Count(), Bytes: bytes, All: latencies(&all, true), Reads: latencies(&reads, false),
		Writes: latencies(&writes, false)}
	if t.slo > 0 {
		p.Misses = &misses
	}
	return p
}

func (t *tally) rows() [][4]float64 {
	rows := make([][4]float64, 0, len(t.series))
	for i, m := range t.series {
		begin := (t.window * time.Duration(i)).Seconds()
		rows = append(rows, [4]float64{begin, float64(m.requests), float64(m.misses), m.longest.Seconds()})
	}
	return rows
}

func latencies(h *sim.Histogram, buckets bool) Latencies {
	if h.Count() == 0 {
		return Latencies{}
	}
	at := func(q float64) float64 { return h.Quantile(q).Seconds() }
	l := Latencies{Count: h.Count(), Mean: h.Mean(), P50: at(0.5), P90: at(0.9), P95: at(0.95),
		P99: at(0.99), P999: at(0.999), P9999: at(0.9999), Max: h.Max().Seconds()}
	if buckets {
		for _, b := range h.Buckets() {
			l.Buckets = append(l.Buckets, [3]int64{b.Low, b.High, int64(b.Count)})
		}
	}
	return l
}

func (s *run) result(length time.Duration) *Result {
	r := &Result{Schema: Schema, Seed: s.scenario.Seed, Length: length.Seconds(), Events: s.kernel.Events(),
		Devices: []QueueResult{}, Links: []QueueResult{}}
	for _, c := range s.clients {
		r.Workloads = append(r.Workloads, c.result())
		r.End = max(r.End, c.lastEnd.Seconds())
	}
	for _, d := range s.devices {
		r.Devices = append(r.Devices, d.result(length))
	}
	for _, q := range s.links {
		r.Links = append(r.Links, q.result(length))
	}
	return r
}

func (c *client) result() WorkloadResult {
	t := &c.tally
	stats := c.device.enforcer.Stats()[c.flow]
	mode := "open"
	if c.spec.Closed > 0 {
		mode = "closed"
	}
	return WorkloadResult{
		Name: c.spec.Name, Mode: mode, Completed: c.lastEnd.Seconds(),
		Half: c.half.Seconds(), LastSent: c.lastSent.Seconds(), MaxBacklog: c.most,
		Whole: t.part(t.halves[0], t.halves[1]), SecondHalf: t.part(t.halves[1]),
		Stages: map[string]Latencies{"network-in": latencies(&t.in, false),
			"storage": latencies(&t.storage, false), "network-out": latencies(&t.out, false)},
		Wait: latencies(&t.wait, false), Service: latencies(&t.service, false),
		Enforcer: Enforced{stats.Held, stats.OutOfProfile, stats.Work, stats.Weight},
		Series:   t.rows(), Malformed: c.trace.Report.Malformed, FirstBad: c.trace.Report.First,
	}
}

func (q *queue) result(length time.Duration) QueueResult {
	r := QueueResult{Name: q.name, Pieces: q.pieces, Cost: q.work, Busy: q.busy.Seconds(), MaxQueue: q.most,
		Lag: q.enforcer.Service().Lag.Seconds()}
	if length > 0 {
		r.Utilisation = q.byLimit.Seconds() / length.Seconds()
	}
	return r
}
