// Package burst simulates bursts of writes on a cluster of object servers, as section III of the
// two-choice paper (Dai, Chen, Kimpe and Ross, SC 2014) does for its figures 3 and 4: servers that
// hold writes already, some of them (stragglers) many times more, and processes that all write at
// once. The schedulers and the servers' load detectors are package twochoice, the very code of the
// I/O path; what is modelled here are the servers' queues, the network's round trip and the clock.
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

// gap is the computation between two bursts.
const gap = 10 * time.Second

// Parameters are those of a run. Times are seconds.
type Parameters struct {
	Scheduler twochoice.Policy  `json:"scheduler"`
	Choices   twochoice.Choices `json:"choices"`
	Servers   int               `json:"servers"`
	Processes int               `json:"processes"`
	// PerNode is how many processes share a compute node, which is a scheduler and a link.
	PerNode int `json:"processes_per_node"`
	// StragglerRatio of the servers have StragglerFactor times the load; others in each burst.
	StragglerRatio  float64 `json:"straggler_ratio"`
	StragglerFactor float64 `json:"straggler_factor"`
	// LoadMean and LoadSD are those of the writes that a server holds when a burst begins: normal,
	// rounded to whole writes.
	LoadMean float64 `json:"load_mean"`
	LoadSD   float64 `json:"load_sd"`
	Service  float64 `json:"service_s"`    // of one write at a server
	Trip     float64 `json:"round_trip_s"` // between a compute node and a server
	Link     float64 `json:"link_s"`       // of one write on a compute node's link
	Spread   float64 `json:"spread_s"`     // nodes begin within it, each at a time of its own
	Cache    float64 `json:"cache_s"`      // lifetime of loads of other servers (III.B)
	// Weight is that of P(load)'s prior, in decisions (III.C).
	Weight float64 `json:"prior_weight"`
	// LearnRounds bursts do not count: servers learn in them. Rounds bursts count.
	LearnRounds int `json:"learn_rounds"`
	Rounds      int `json:"rounds"`
	// Forget what was learned before each burst that counts: a cold start.
	Forget bool `json:"forget"`
	// Redirects lets a redirected write count when its home server has recorded it (V.A, step 4).
	Redirects bool   `json:"redirects"`
	Seed      uint64 `json:"seed"`
	// Trace tells the loads and the probed servers of the first burst that counts, for another
	// simulator to follow.
	Trace bool `json:"trace,omitempty"`
}

// Defaults are those of figure 3 as far as the paper gives them: 1,000 servers, 10,000 processes,
// 5 ms, stragglers with 5 times the load. Mean 10 and deviation 2 have figure 4's 60 servers of
// load 7, 20 ms are the 50 MB/s between a compute node and a server of section VI.A, 8 processes and
// 4 GB/s those of its nodes.
func Defaults() Parameters {
	return Parameters{
		Scheduler: twochoice.TwoChoice, Choices: twochoice.RandomRandom,
		Servers: 1000, Processes: 10_000, PerNode: 8, StragglerFactor: 5, LoadMean: 10, LoadSD: 2,
		Service: 0.02, Trip: 0.005, Link: 0.00025, Cache: 0.2, Weight: 1, Rounds: 1,
	}
}

// Read reads parameters in JSON; what is left out has its default. Errors are one sentence.
func Read(in io.Reader) (Parameters, error) {
	p := Defaults()
	decoder := json.NewDecoder(in)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return p, fmt.Errorf("the request cannot be read: %w", err)
	}
	return p, p.Validate()
}

// Validate reports, in one sentence, the first value that is outside its range.
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

// core are the parameters of the schedulers and the detectors.
func (p *Parameters) core() twochoice.Parameters {
	core := twochoice.Simulated(p.Scheduler)
	core.Choices = p.Choices
	core.CacheLifetime = twochoice.Span(sim.Seconds(p.Cache))
	core.Preassign.Unit = WriteBytes
	core.Preassign.Weight = p.Weight
	// A preassigned write is expected until it comes, however slow its link.
	wait := sim.Seconds(p.Trip + float64(float64(p.PerNode)*p.Link))
	core.Preassign.Lifetime = twochoice.Span(max(time.Second, 2*wait))
	return core
}

// stragglers is how many servers are.
func (p *Parameters) stragglers() int {
	return int(math.Round(p.StragglerRatio * float64(p.Servers)))
}

// nodes is how many compute nodes there are.
func (p *Parameters) nodes() int { return (p.Processes + p.PerNode - 1) / p.PerNode }
