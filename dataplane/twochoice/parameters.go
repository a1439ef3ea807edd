package twochoice

import (
	"fmt"
	"slices"
	"time"

	"hotbed/dataplane/internal/limits"
)

// Policy is the name of a scheduler.
type Policy string

// The schedulers: the paper's six (figure 3), and two for comparison.
const (
	Fixed         Policy = "fixed"         // at home: round robin over the stripes of a file
	Uniform       Policy = "random"        // any server
	TwoChoice     Policy = "two-choice"    // the less loaded of two, separately for each write (III)
	Collaborative Policy = "collaborative" // the k least loaded of 2k for k writes (III.B)
	Preassign     Policy = "preassign"     // two-choice with server preassignment (III.C)
	Both          Policy = "both"          // collaborative with server preassignment
	Prequal       Policy = "prequal"       // hot-cold rule over a pool of probes (NSDI 2024)
	Oracle        Policy = "oracle"        // join the shortest queue, knowing true queue lengths
)

// Policies lists all schedulers.
var Policies = []Policy{Fixed, Uniform, TwoChoice, Collaborative, Preassign, Both, Prequal, Oracle}

// Preassigns reports whether servers preassign for the probes of a policy.
func (p Policy) Preassigns() bool { return p == Preassign || p == Both }

// Shares reports whether servers pass on loads of other servers.
func (p Policy) Shares() bool { return p == Collaborative || p == Both }

// Choices selects the candidate servers of a write.
type Choices string

// The choices.
const (
	HomeRandom   Choices = "home+random"   // the object's home and a random server (V.A)
	RandomRandom Choices = "random+random" // two random servers (III)
)

// Metric selects the unit of load (V.D).
type Metric string

// The metrics.
const (
	Bytes      Metric = "bytes"      // bytes in flight
	Operations Metric = "operations" // operations in flight
)

// Span is a duration in JSON.
type Span = limits.Span

// PrequalParameters configures Prequal's rule; the defaults are those of its paper.
type PrequalParameters struct {
	Probes   int     `json:"probes" limits:"1 64"`  // for each write: 3
	Pool     int     `json:"pool" limits:"1 1024"`  // probes remembered: 16
	Age      Span    `json:"age" limits:"1e-9 1e9"` // lifetime of a remembered probe: 1 s
	Quantile float64 `json:"quantile" limits:"0 1"` // servers above this quantile of operations in flight are hot: 0.84
}

// PreassignParameters configures P(load) and preassignment (III.C).
type PreassignParameters struct {
	Unit     float64 `json:"unit" limits:"1e-9 1e18"`    // width of a load bin: 1 MiB, or 1 operation
	Prior    float64 `json:"prior" limits:"0 1"`         // P before any learning: 0.5, k of 2k
	Weight   float64 `json:"weight" limits:"0 1e9"`      // weight of the prior in probes: 1
	Lifetime Span    `json:"lifetime" limits:"1e-9 1e9"` // of a preassignment, if the write does not come: 1 s
}

// Parameters configures a scheduler and the servers' detectors.
type Parameters struct {
	Scheduler Policy  `json:"scheduler"`
	Choices   Choices `json:"choices"`
	Metric    Metric  `json:"metric"`
	// MinWrite: smaller writes stay at home without probes; 1 KiB (VI.A).
	MinWrite int64 `json:"min_write" limits:"0 1e18"`
	// CacheLifetime: lifetime of remembered loads of other servers; 200 ms (III.B).
	CacheLifetime Span `json:"cache_lifetime" limits:"0 1e9"`
	// CacheSize: maximum number of remembered loads; 16. 0 disables the cache.
	CacheSize int                 `json:"cache_size" limits:"0 1024"`
	Preassign PreassignParameters `json:"preassign"`
	Prequal   PrequalParameters   `json:"prequal"`
}

// Defaults returns the parameters of a scheduler on a store, with loads in bytes. A caller that
// sets another metric must set preassign.unit too.
func Defaults(scheduler Policy) Parameters {
	return Parameters{
		Scheduler: scheduler, Choices: HomeRandom, Metric: Bytes, MinWrite: 1 << 10,
		CacheLifetime: Span(200 * time.Millisecond), CacheSize: 16,
		Preassign: PreassignParameters{Unit: 1 << 20, Prior: 0.5, Weight: 1, Lifetime: Span(time.Second)},
		Prequal:   PrequalParameters{Probes: 3, Pool: 16, Age: Span(time.Second), Quantile: 0.84},
	}
}

// Simulated returns the parameters of the paper's simulation: both candidates are random (III).
func Simulated(scheduler Policy) Parameters {
	p := Defaults(scheduler)
	p.Choices = RandomRandom
	return p
}

// Validate returns an error of one sentence for the first parameter that is not allowed.
func (p Parameters) Validate() error {
	switch {
	case !slices.Contains(Policies, p.Scheduler):
		return fmt.Errorf("scheduler is %q; allowed is one of %q", p.Scheduler, Policies)
	case p.Choices != HomeRandom && p.Choices != RandomRandom:
		return fmt.Errorf("choices is %q; allowed is %q or %q", p.Choices, HomeRandom, RandomRandom)
	case p.Metric != Bytes && p.Metric != Operations:
		return fmt.Errorf("metric is %q; allowed is %q or %q", p.Metric, Bytes, Operations)
	}
	return limits.Check(p)
}
