package apps

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"hotbed/dataplane/internal/burst"
	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/protocol"
	"hotbed/dataplane/twochoice/server"
)

// Report is a plan's result. Times are in seconds.
type Report struct {
	Nodes     int `json:"nodes"`
	Processes int `json:"processes"` // of the operating system
	// Began is when all ranks could begin (seconds since the epoch). All had ended Seconds later.
	Began   float64     `json:"began"`
	Seconds float64     `json:"seconds"`
	Apps    []AppReport `json:"apps"`
	// Schedulers are the counts of all compute nodes' schedulers, by policy.
	Schedulers map[twochoice.Policy]twochoice.Stats `json:"schedulers"`
	// Steps are the times of requests: probe, put (the data), register (the redirect's record).
	Steps    map[string]Spread `json:"steps"`
	Verified *Verified         `json:"verified,omitempty"`
	Errors   []string          `json:"errors,omitempty"` // the first write errors
}

// AppReport is an application's result.
type AppReport struct {
	Name       string           `json:"name"`
	Scheduler  twochoice.Policy `json:"scheduler"`
	Background bool             `json:"background"`
	Ranks      int              `json:"ranks"`
	Writes     int              `json:"writes"` // acknowledged
	Failed     int              `json:"failed"`
	Bytes      int64            `json:"bytes"`
	Redirected int              `json:"redirected"` // writes
	// RankSeconds is when each rank ended, relative to the job's start (figure 14).
	RankSeconds []float64 `json:"rank_seconds"`
	// ServerBytes are the bytes each server received (figure 13); HomeBytes are the bytes without
	// redirects. Both are empty if CRUSH placed the writes.
	ServerBytes []int64 `json:"server_bytes"`
	HomeBytes   []int64 `json:"home_bytes"`
	Latency     Spread  `json:"latency"`
}

// Spread is a distribution of times, in seconds; percentiles are null with fewer than ten beyond them.
type Spread struct {
	N    int      `json:"n"`
	Mean float64  `json:"mean"`
	P50  *float64 `json:"p50"`
	P90  *float64 `json:"p90"`
	P99  *float64 `json:"p99"`
	Max  float64  `json:"max"`
}

// Verified is the result of reading back.
type Verified struct {
	Objects    int      `json:"objects"`
	Redirected int      `json:"redirected"` // of the objects
	Bad        []string `json:"bad"`
	Seconds    float64  `json:"seconds"`
	// Query is the extra step of reads because of redirects: asking the home for the location. Home
	// and Elsewhere are whole reads of objects that were written at home and elsewhere.
	Query     Spread `json:"query"`
	Home      Spread `json:"home"`
	Elsewhere Spread `json:"elsewhere"`
}

// errorsShown is the maximum number of write errors in a report.
const errorsShown = 5

// spread computes a distribution; it sorts took in place.
func spread(took []time.Duration) Spread {
	s := Spread{N: len(took)}
	if s.N == 0 {
		return s
	}
	slices.Sort(took)
	s.Mean, s.Max = burst.Mean(took), took[s.N-1].Seconds()
	s.P50, s.P90, s.P99 = burst.Quantile(took, 0.5), burst.Quantile(took, 0.9), burst.Quantile(took, 0.99)
	return s
}

// report summarizes a run.
func (m *machine) report(began time.Time, took time.Duration) Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := Report{Nodes: m.plan.Nodes, Processes: len(m.all), Began: float64(began.UnixNano()) / 1e9, Seconds: took.Seconds(),
		Schedulers: map[twochoice.Policy]twochoice.Stats{}, Steps: m.steps()}
	for app := range m.plan.Apps {
		r.Apps = append(r.Apps, m.reportOf(app))
	}
	for _, w := range m.done {
		a := &r.Apps[w.app]
		size, home := int64(m.plan.Apps[w.app].Size), m.home(w)
		a.Writes++
		a.Bytes += size
		if m.plan.Apps[w.app].Pool != "" {
			continue
		}
		a.ServerBytes[w.target] += size
		a.HomeBytes[home] += size
		if w.target != home {
			a.Redirected++
		}
	}
	for _, clients := range m.clients {
		for policy, client := range clients {
			sum := r.Schedulers[policy]
			sum.Add(client.Stats())
			r.Schedulers[policy] = sum
		}
	}
	for _, err := range m.errs[:min(len(m.errs), errorsShown)] {
		r.Errors = append(r.Errors, err.Error())
	}
	return r
}

func (m *machine) home(w written) protocol.Node {
	return m.cluster.Home(m.plan.Apps[w.app].object(w.stripe))
}

// reportOf returns an application's report without the results of its writes.
func (m *machine) reportOf(app int) AppReport {
	a := &m.plan.Apps[app]
	out := AppReport{Name: a.Name, Scheduler: m.policy(app), Background: a.Background, Ranks: a.ranks(&m.plan),
		Failed: m.failed[app], RankSeconds: make([]float64, a.ranks(&m.plan)),
		ServerBytes: make([]int64, len(m.cluster.Agents)), HomeBytes: make([]int64, len(m.cluster.Agents))}
	var took []time.Duration
	for i, c := range m.all {
		for place, r := range c.task.Ranks {
			if r.App != app || len(m.times[i].Ended) == 0 {
				continue
			}
			out.RankSeconds[r.Rank] = (m.times[i].Ended[place] - time.Duration(a.Start)).Seconds()
			took = append(took, m.times[i].Took[place]...)
		}
	}
	out.Latency = spread(took)
	if a.Pool != "" {
		out.ServerBytes, out.HomeBytes = []int64{}, []int64{}
	}
	return out
}

// steps returns the request times of all compute nodes.
func (m *machine) steps() map[string]Spread {
	out := map[string]Spread{}
	for _, kind := range []protocol.Kind{protocol.Probe, protocol.Put, protocol.Register} {
		var took []time.Duration
		for _, clients := range m.clients {
			for _, client := range clients {
				took = append(took, client.Steps(kind)...)
			}
		}
		out[kind.String()] = spread(took)
	}
	return out
}

// readers is the number of objects read back in parallel.
const readers = 32

// verify reads back acknowledged writes with a client that wrote none of them.
func (m *machine) verify() (*Verified, error) {
	c := m.cluster
	c.Scheduler = twochoice.Defaults(twochoice.Fixed)
	client, err := server.Connect(c)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	client.TimeSteps()
	if err := client.Ready(m.ctx); err != nil {
		return nil, err
	}
	pools := pools{open: m.pools.open, patience: m.pools.patience, there: map[place]pool{}}
	defer pools.close()
	for _, a := range m.plan.Apps {
		if a.Pool != "" {
			if err := pools.connect(m.plan.Ceph, place{0, a.Pool}); err != nil {
				return nil, err
			}
		}
	}
	v := &Verified{Bad: []string{}}
	began := time.Now()
	next := make(chan written)
	var mu sync.Mutex
	var all sync.WaitGroup
	home, elsewhere := []time.Duration{}, []time.Duration{}
	for range readers {
		all.Go(func() {
			for w := range next {
				a := &m.plan.Apps[w.app]
				name := a.object(w.stripe)
				start := time.Now()
				var data []byte
				var err error
				if a.Pool != "" {
					data, err = readWhole(pools.there[place{0, a.Pool}], name, a.Size)
				} else {
					data, err = client.Read(m.ctx, name, 0, uint64(a.Size))
				}
				took := time.Since(start)
				mu.Lock()
				v.Objects++
				into := &home
				if a.Pool == "" && w.target != m.home(w) {
					v.Redirected++
					into = &elsewhere
				}
				*into = append(*into, took)
				switch {
				case err != nil:
					v.Bad = append(v.Bad, name+": "+err.Error())
				case !bytes.Equal(data, m.fill(w)):
					v.Bad = append(v.Bad, name+": other bytes than were acknowledged")
				}
				mu.Unlock()
			}
		})
	}
	for _, w := range m.done {
		if m.plan.VerifyAll || !m.plan.Apps[w.app].Background {
			next <- w
		}
	}
	close(next)
	all.Wait()
	v.Seconds = time.Since(began).Seconds()
	v.Query, v.Home, v.Elsewhere = spread(client.Steps(protocol.Query)), spread(home), spread(elsewhere)
	return v, m.ctx.Err()
}
