package burst

import (
	"context"
	"slices"
	"sync"
	"time"

	"hotbed/dataplane/twochoice/protocol"
	"hotbed/dataplane/twochoice/server"
)

// Summary is a burst's result as numbers. Times are in seconds; percentiles are null with fewer
// than ten writes beyond them.
type Summary struct {
	Writes          int                 `json:"writes"`
	Failed          int                 `json:"failed"`
	Undecided       int                 `json:"undecided"`
	Bytes           int64               `json:"bytes"`
	Seconds         float64             `json:"seconds"`
	BytesPerSecond  float64             `json:"bytes_per_second"`
	Redirected      uint64              `json:"redirected"`
	RedirectedShare float64             `json:"redirected_share"`
	Probes          uint64              `json:"probes"`
	Unanswered      uint64              `json:"unanswered_probes"`
	Latency         map[string]*float64 `json:"latency_seconds"`
	// ProcessSeconds is when each process ended (figure 14), null if a write of it failed.
	ProcessSeconds []*float64 `json:"process_seconds"`
	// ServerBytes are the bytes each server received (figure 13).
	ServerBytes []int64 `json:"server_bytes"`
}

// Summarize summarizes a burst on the given number of servers.
func Summarize(r Result, servers int) Summary {
	s := Summary{Writes: len(r.Done), Failed: len(r.Failed), Seconds: r.Took.Seconds(), Latency: map[string]*float64{},
		Redirected: r.Scheduler.Redirected, RedirectedShare: r.Scheduler.Share(), Probes: r.Scheduler.Probes,
		Unanswered: r.Scheduler.Unanswered, ServerBytes: make([]int64, servers)}
	for _, f := range r.Failed {
		if f.Undecided {
			s.Undecided++
		}
	}
	var took []time.Duration
	for _, d := range r.Done {
		s.Bytes += int64(d.Size)
		s.ServerBytes[d.Target] += int64(d.Size)
		took = append(took, d.Took)
	}
	s.BytesPerSecond = float64(s.Bytes) / s.Seconds
	slices.Sort(took)
	for name, q := range map[string]float64{"p50": 0.5, "p90": 0.9, "p99": 0.99} {
		s.Latency[name] = quantile(took, q)
	}
	if n := len(took); n > 0 {
		most := took[n-1].Seconds()
		s.Latency["max"] = &most
	}
	for _, p := range r.Processes {
		var at *float64
		if p > 0 {
			seconds := p.Seconds()
			at = &seconds
		}
		s.ProcessSeconds = append(s.ProcessSeconds, at)
	}
	return s
}

// quantile returns a quantile of sorted times, or nil with fewer than ten beyond it.
func quantile(sorted []time.Duration, q float64) *float64 {
	at := int(q * float64(len(sorted)))
	if len(sorted)-at < 10 {
		return nil
	}
	v := sorted[at].Seconds()
	return &v
}

// Probed are the durations of probes, each until the slowest server answered.
type Probed struct {
	Servers    int      `json:"servers"`
	Schedulers int      `json:"schedulers"`
	Probes     int      `json:"probes"`
	Lost       int      `json:"lost"`
	Mean       float64  `json:"mean_seconds"`
	P50        *float64 `json:"p50_seconds"`
	P99        *float64 `json:"p99_seconds"`
}

// Probe times probes of the first `servers` servers (figure 11: each scheduler probes all of them
// repeatedly, and the slowest answer counts).
func Probe(ctx context.Context, c server.Cluster, servers, schedulers, times int, size uint64) (Probed, error) {
	probers := make([]prober, schedulers)
	for i := range probers {
		p, err := server.NewProber(c)
		if err != nil {
			return Probed{}, err
		}
		defer p.Close()
		probers[i] = p
	}
	return timed(ctx, probers, servers, times, size)
}

// prober asks servers for their loads and returns the number of answers.
type prober interface {
	Probe(ctx context.Context, nodes []protocol.Node, size uint64) (int, error)
}

// timed lets all probers probe in parallel after each has connected: the cost of connecting must
// not affect any probe.
func timed(ctx context.Context, probers []prober, servers, times int, size uint64) (Probed, error) {
	out := Probed{Servers: servers, Schedulers: len(probers)}
	var mu sync.Mutex
	var all, ready sync.WaitGroup
	var took []time.Duration
	var first error
	nodes := make([]protocol.Node, servers)
	for i := range nodes {
		nodes[i] = protocol.Node(i)
	}
	ready.Add(len(probers))
	for _, p := range probers {
		all.Go(func() {
			_, err := p.Probe(ctx, nodes, size) // connects
			ready.Done()
			ready.Wait()
			for i := 0; i < times && err == nil; i++ {
				start := time.Now()
				var answered int
				answered, err = p.Probe(ctx, nodes, size)
				mu.Lock()
				took = append(took, time.Since(start))
				if answered < servers {
					out.Lost++
				}
				mu.Unlock()
			}
			if err != nil {
				mu.Lock()
				first = err
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if first != nil {
		return out, first
	}
	slices.Sort(took)
	var sum time.Duration
	for _, t := range took {
		sum += t
	}
	out.Probes, out.Mean = len(took), sum.Seconds()/float64(len(took))
	out.P50, out.P99 = quantile(took, 0.5), quantile(took, 0.99)
	return out, nil
}
