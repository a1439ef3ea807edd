// Package burst simulates bursts of writes on a cluster of object servers, as in section III of the
// two-choice paper (Dai, Chen, Kimpe and Ross, SC 2014), figures 3 and 4. Servers hold initial
// writes, stragglers many times more, and all processes write at once. Schedulers and load
// detectors are the real code of package twochoice; only the servers' queues, the network's round
// trip and the clock are modelled.
package burst

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"

	"hotbed/dataplane/sim"
	"hotbed/dataplane/twochoice"
)

// WriteBytes is the length of a write, 1 MB.
const WriteBytes = 1_000_000

// gap is the computation time between two bursts.
const gap = 10 * time.Second

// Parameters configures a run. Times are in seconds.
type Parameters struct {
	Scheduler twochoice.Policy  `json:"scheduler"`
	Choices   twochoice.Choices `json:"choices"`
	Servers   int               `json:"servers"`
	Processes int               `json:"processes"`
	// PerNode is the number of processes per compute node, which has a scheduler and a link.
	PerNode int `json:"processes_per_node"`
	// StragglerRatio of the servers have StragglerFactor times the load; others in each burst.
	StragglerRatio  float64 `json:"straggler_ratio"`
	StragglerFactor float64 `json:"straggler_factor"`
	// LoadMean and LoadSD describe a server's writes at the start of a burst: normal, rounded to
	// whole writes.
	LoadMean float64 `json:"load_mean"`
	LoadSD   float64 `json:"load_sd"`
	Service  float64 `json:"service_s"`    // of one write at a server
	Trip     float64 `json:"round_trip_s"` // between a compute node and a server
	Link     float64 `json:"link_s"`       // of one write on a compute node's link
	Spread   float64 `json:"spread_s"`     // nodes begin at random times within it
	Cache    float64 `json:"cache_s"`      // lifetime of loads of other servers (III.B)
	// Weight is the weight of P(load)'s prior, in decisions (III.C).
	Weight float64 `json:"prior_weight"`
	// LearnRounds is the number of uncounted bursts for learning; Rounds is that of counted bursts.
	LearnRounds int `json:"learn_rounds"`
	Rounds      int `json:"rounds"`
	// Forget discards all learning before each counted burst: a cold start.
	Forget bool `json:"forget"`
	// Redirects delays a redirected write until its home server has recorded it (V.A, step 4).
	Redirects bool   `json:"redirects"`
	Seed      uint64 `json:"seed"`
	// Trace outputs the loads and the probed servers of the first counted burst, for another
	// simulator.
	Trace bool `json:"trace,omitempty"`
}

// Defaults returns figure 3's parameters as far as the paper gives them: 1,000 servers, 10,000
// processes, 5 ms, stragglers with 5 times the load. Mean 10 and deviation 2 have figure 4's 60
// servers of load 7. 20 ms is the 50 MB/s between a compute node and a server of section VI.A; its
// nodes have 8 processes and 4 GB/s.
func Defaults() Parameters {
	return Parameters{
		Scheduler: twochoice.TwoChoice, Choices: twochoice.RandomRandom,
		Servers: 1000, Processes: 10_000, PerNode: 8, StragglerFactor: 5, LoadMean: 10, LoadSD: 2,
		Service: 0.02, Trip: 0.005, Link: 0.00025, Cache: 0.2, Weight: 1, Rounds: 1,
	}
}

// Read reads parameters in JSON; missing fields have defaults. Errors are one sentence.
func Read(in io.Reader) (Parameters, error) {
	p := Defaults()
	decoder := json.NewDecoder(in)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return p, fmt.Errorf("the request cannot be read: %w", err)
	}
	return p, p.Validate()
}

// Validate returns an error of one sentence for the first value outside its range.
func (p *Parameters) Validate() error {
	for _, c := range []struct {
		name           string
		v, least, most float64
	}{
		{name: "servers", v: float64(p.Servers), least: 2, most: 1e6},
		{name: "processes", v: float64(p.Processes), least: 1, most: 1e7},
		{name: "processes_per_node", v: float64(p.PerNode), least: 1, most: 65536},
		{name: "straggler_ratio", v: p.StragglerRatio, most: 1},
		{name: "straggler_factor", v: p.StragglerFactor, least: 1, most: 1000},
		{name: "load_mean", v: p.LoadMean, most: 1e6},
		{name: "load_sd", v: p.LoadSD, most: 1e6},
		{name: "service_s", v: p.Service, least: 1e-6, most: 60},
		{name: "round_trip_s", v: p.Trip, most: 10},
		{name: "link_s", v: p.Link, most: 10},
		{name: "spread_s", v: p.Spread, most: 60},
		{name: "cache_s", v: p.Cache, most: 3600},
		{name: "prior_weight", v: p.Weight, most: 1e9},
		{name: "learn_rounds", v: float64(p.LearnRounds), most: 10_000},
		{name: "rounds", v: float64(p.Rounds), least: 1, most: 10_000},
	} {
		if !(c.v >= c.least && c.v <= c.most) {
			return fmt.Errorf("%s is %g, allowed is %g to %g", c.name, c.v, c.least, c.most)
		}
	}
	core := p.core()
	return core.Validate()
}

// core returns the parameters of the schedulers and the detectors.
func (p *Parameters) core() twochoice.Parameters {
	core := twochoice.Simulated(p.Scheduler)
	core.Choices = p.Choices
	core.CacheLifetime = twochoice.Span(sim.Seconds(p.Cache))
	core.Preassign.Unit = WriteBytes
	core.Preassign.Weight = p.Weight
	// A preassignment lasts until its write arrives, however slow its link.
	wait := sim.Seconds(p.Trip + float64(float64(p.PerNode)*p.Link))
	core.Preassign.Lifetime = twochoice.Span(max(time.Second, 2*wait))
	return core
}

// stragglers returns the number of stragglers.
func (p *Parameters) stragglers() int {
	return int(math.Round(p.StragglerRatio * float64(p.Servers)))
}

// nodes returns the number of compute nodes.
func (p *Parameters) nodes() int { return (p.Processes + p.PerNode - 1) / p.PerNode }
