package enforcer

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"hotbed/dataplane/internal/limits"
)

// Policy is the name of a policy.
type Policy string

// The policies (section 5.3 of the paper, and mClock).
const (
	PM     Policy = "pm"     // priorities and chains of token buckets
	PS     Policy = "ps"     // proportional share: start-time fair queueing with depth, SFQ(D)
	Cake   Policy = "cake"   // SFQ(D), weights adapted to the workloads' SLOs
	EDF    Policy = "edf"    // earliest deadline first, deadline = arrival + SLO
	BySLO  Policy = "byslo"  // strict priority, smallest SLO first
	MClock Policy = "mclock" // reservations, limits and weights
	None   Policy = "none"   // first come, first served
)

// Policies lists all policies.
var Policies = []Policy{PM, PS, Cake, EDF, BySLO, MClock, None}

// family groups policies that share their state.
var family = map[Policy]string{PM: "pm", PS: "share", Cake: "share", EDF: "order", BySLO: "order",
	None: "order", MClock: "mclock"}

var policies = map[Policy]func() policy{
	PM:     func() policy { return &prioritized{} },
	PS:     func() policy { return &share{} },
	Cake:   func() policy { return &share{} },
	EDF:    func() policy { return &ordered{} },
	BySLO:  func() policy { return &ordered{} },
	None:   func() policy { return &ordered{} },
	MClock: func() policy { return &mclock{} },
}

// Mode selects pm's treatment of a request without room in its buckets.
type Mode string

// The modes of pm.
const (
	// Hold lets the request wait until all its buckets have room (section 3.1).
	Hold Mode = "hold"
	// BestEffort serves it after all requests in profile, as the paper's successors do.
	BestEffort Mode = "best-effort"
)

// Span is a duration in JSON.
type Span = limits.Span

// Workload configures a workload. A policy uses only its own fields.
type Workload struct {
	Name string `json:"name"`
	// Priority (pm): lower numbers are served first; equal priorities by arrival.
	Priority int `json:"priority,omitempty"`
	// Pairs (pm): token buckets [rate, burst], in seconds of the device per second and seconds of
	// the device; a request must fit into all buckets. None: no limit.
	Pairs [][2]float64 `json:"pairs,omitempty"`
	// SLO (edf, byslo, cake): 0 means none, for example for throughput workloads.
	SLO Span `json:"slo,omitempty" limits:"0 1e9"`
	// Weight (ps, cake, mclock): 0 means 1.
	Weight float64 `json:"weight,omitempty" limits:"0 1e9"`
	// Reservation and Limit (mclock): seconds of the device per second, 0 for none.
	Reservation float64 `json:"reservation,omitempty" limits:"0 1e9"`
	Limit       float64 `json:"limit,omitempty" limits:"0 1e9"`
	// BestEffort (pm): never in profile; served when nothing in profile waits.
	BestEffort bool `json:"best_effort,omitempty"`
}

// CakeParameters configures Cake in the paper's variant (5.3): a weight for each workload. Every
// Interval perf = SLO / latency at Percentile; below 1 the weight is multiplied by min(1+Step,
// 1/perf), above Upper by max(1-Step, Upper/perf). Weights are normalised to a sum of 1, none below
// Floor.
type CakeParameters struct {
	Interval   Span    `json:"interval,omitempty" limits:"1e-3 1e9"`  // 10 s
	Percentile float64 `json:"percentile,omitempty" limits:"1e-9 1"`  // 0.99
	Step       float64 `json:"step,omitempty" limits:"1e-9 0.999999"` // 0.1
	Upper      float64 `json:"upper,omitempty" limits:"1 1e9"`        // 1.2
	Floor      float64 `json:"floor,omitempty"`                       // 0.01, or half an even share if that is less
}

// Parameters configures an enforcer.
type Parameters struct {
	Policy Policy `json:"policy"`
	// Mode (pm): empty means hold.
	Mode Mode `json:"mode,omitempty"`
	// Depth is the maximum number of outstanding requests; 0 means unlimited.
	Depth     int            `json:"depth" limits:"0 65536"`
	Cake      CakeParameters `json:"cake"`
	Workloads []Workload     `json:"workloads"`
}

// Validate returns an error of one sentence if the parameters are invalid.
func (p Parameters) Validate() error {
	_, err := p.checked()
	return err
}

// checked returns a copy with defaults filled in.
func (p Parameters) checked() (Parameters, error) {
	if policies[p.Policy] == nil {
		return p, fmt.Errorf("policy is %q; there are %q", p.Policy, Policies)
	}
	if p.Mode == "" {
		p.Mode = Hold
	}
	switch {
	case p.Mode != Hold && p.Mode != BestEffort:
		return p, fmt.Errorf("mode is %q; there are %q and %q", p.Mode, Hold, BestEffort)
	case len(p.Workloads) == 0:
		return p, fmt.Errorf("there are no workloads; name at least one")
	}
	seen := map[string]bool{}
	workloads := make([]Workload, len(p.Workloads))
	for i, w := range p.Workloads {
		if err := w.check(); err != nil {
			return p, err
		}
		if seen[w.Name] {
			return p, fmt.Errorf("workload %q is there twice; names must differ", w.Name)
		}
		seen[w.Name] = true
		if w.Weight == 0 {
			w.Weight = 1
		}
		w.Pairs = append([][2]float64(nil), w.Pairs...)
		workloads[i] = w
	}
	p.Workloads = workloads
	if err := p.Cake.fill(len(workloads)); err != nil {
		return p, err
	}
	return p, limits.Check(p)
}

func (w Workload) check() error {
	if w.Name == "" {
		return fmt.Errorf("a workload has no name; give each one")
	}
	if err := limits.Check(w); err != nil {
		return fmt.Errorf("workload %q: %w", w.Name, err)
	}
	if w.Weight != 0 && w.Weight < 1e-9 {
		return fmt.Errorf("workload %q: weight is %g; write at least 1e-9", w.Name, w.Weight)
	}
	if w.Limit > 0 && w.Limit < w.Reservation {
		return fmt.Errorf("workload %q: limit %g is below reservation %g", w.Name, w.Limit, w.Reservation)
	}
	for i, pair := range w.Pairs {
		// Trace requests 1 ns apart need rates far above any link's.
		if !(pair[0] > 0 && pair[0] <= 1e30) || !(pair[1] >= 0 && pair[1] <= 1e18) {
			return fmt.Errorf("workload %q: pairs[%d] is [%g, %g]; write [rate, burst] with a rate above 0, "+
				"at most 1e30, and a burst of 0 to 1e18", w.Name, i, pair[0], pair[1])
		}
	}
	return nil
}

// fill sets missing values; n is the number of workloads.
func (c *CakeParameters) fill(n int) error {
	c.Interval = cmp.Or(c.Interval, Span(10*time.Second))
	c.Percentile = cmp.Or(c.Percentile, 0.99)
	c.Step = cmp.Or(c.Step, 0.1)
	c.Upper = cmp.Or(c.Upper, 1.2)
	c.Floor = cmp.Or(c.Floor, math.Min(0.01, 0.5/float64(n)))
	if !(c.Floor > 0 && c.Floor*float64(n) <= 1) {
		return fmt.Errorf("cake.floor is %g; write a share above 0 that %d workloads can all have", c.Floor, n)
	}
	return nil
}
