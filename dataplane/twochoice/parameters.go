package twochoice

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Policy is the name of a scheduler.
type Policy string

// The schedulers: the paper's six (figure 3), and two to compare with.
const (
	Fixed         Policy = "fixed"         // at home: round robin over the stripes of a file
	Uniform       Policy = "random"        // any server
	TwoChoice     Policy = "two-choice"    // the less loaded of two, each write for itself (III)
	Collaborative Policy = "collaborative" // the k least loaded of 2k for k writes (III.B)
	Preassign     Policy = "preassign"     // two-choice; servers preassign (III.C)
	Both          Policy = "both"          // collaborative; servers preassign
	Prequal       Policy = "prequal"       // hot-cold rule over a pool of probes (NSDI 2024)
	Oracle        Policy = "oracle"        // join the shortest queue, told true queue lengths
)

// Policies are all schedulers.
var Policies = []Policy{Fixed, Uniform, TwoChoice, Collaborative, Preassign, Both, Prequal, Oracle}

// Preassigns says whether servers preassign for the probes of a policy.
func (p Policy) Preassigns() bool { return p == Preassign || p == Both }

// Shares says whether servers pass on loads of other servers.
func (p Policy) Shares() bool { return p == Collaborative || p == Both }

// Choices says which servers are candidates for a write.
type Choices string

// The choices.
const (
	HomeRandom   Choices = "home+random"   // the object's home and a random one (V.A)
	RandomRandom Choices = "random+random" // two random ones (III)
)

// Metric says what a load is (V.D).
type Metric string

// The metrics.
const (
	Bytes      Metric = "bytes"      // bytes in flight
	Operations Metric = "operations" // operations in flight
)

// Span is a time in JSON: seconds as a number, or text such as "50ms".
type Span time.Duration

// UnmarshalJSON reads either form.
func (s *Span) UnmarshalJSON(text []byte) error {
	var seconds float64
	var word string
	if err := json.Unmarshal(text, &seconds); err == nil && math.Abs(seconds) < 1e9 {
		*s = Span(math.Round(seconds * 1e9))
		return nil
	}
	if err := json.Unmarshal(text, &word); err == nil {
		if d, err := time.ParseDuration(word); err == nil {
			*s = Span(d)
			return nil
		}
	}
	return fmt.Errorf("%s is not a time; write seconds, or text such as \"50ms\"", text)
}

// MarshalJSON writes seconds.
func (s Span) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

// PrequalParameters are those of Prequal's rule; the defaults are its paper's.
type PrequalParameters struct {
	Probes   int     `json:"probes"`   // for a write: 3
	Pool     int     `json:"pool"`     // probes remembered: 16
	Age      Span    `json:"age"`      // how long: 1 s
	Quantile float64 `json:"quantile"` // hot is above this quantile of operations in flight: 0.84
	// Asynchronous: writes go by the pool as it is. Else they wait for the answers to their probes.
	Asynchronous bool `json:"asynchronous"`
}

// PreassignParameters are those of P(load) and of what is preassigned (III.C).
type PreassignParameters struct {
	Unit     float64 `json:"unit"`     // by which loads are told apart: 1 MiB, or 1 operation
	Prior    float64 `json:"prior"`    // P before anything was learned: 0.5, k of 2k
	Weight   float64 `json:"weight"`   // probes that the prior counts for: 1
	Lifetime Span    `json:"lifetime"` // of what is preassigned, when the write does not come: 1 s
}

// Parameters are those of a scheduler and of the servers' detectors.
type Parameters struct {
	Scheduler Policy  `json:"scheduler"`
	Choices   Choices `json:"choices"`
	Metric    Metric  `json:"metric"`
	// MinWrite: smaller writes stay at home and are not probed for; 1 KiB (VI.A).
	MinWrite int64 `json:"min_write"`
	// CacheLifetime: how long a server remembers loads of others; 200 ms (III.B).
	CacheLifetime Span `json:"cache_lifetime"`
	// CacheSize: how many; 16. 0 is none.
	CacheSize int                 `json:"cache_size"`
	Preassign PreassignParameters `json:"preassign"`
	Prequal   PrequalParameters   `json:"prequal"`
}

// Defaults are the parameters of a scheduler on a store, whose loads are bytes. Whoever sets another
// metric sets preassign.unit too.
func Defaults(scheduler Policy) Parameters {
	return Parameters{
		Scheduler: scheduler, Choices: HomeRandom, Metric: Bytes, MinWrite: 1 << 10,
		CacheLifetime: Span(200 * time.Millisecond), CacheSize: 16,
		Preassign: PreassignParameters{Unit: 1 << 20, Prior: 0.5, Weight: 1, Lifetime: Span(time.Second)},
		Prequal:   PrequalParameters{Probes: 3, Pool: 16, Age: Span(time.Second), Quantile: 0.84},
	}
}

// Simulated are those of the paper's simulation: both candidates random (III).
func Simulated(scheduler Policy) Parameters {
	p := Defaults(scheduler)
	p.Choices = RandomRandom
	return p
}

// ParseParameters reads them from JSON; what is left out has its default (that of a store, and of
// the metric). Errors are one sentence.
func ParseParameters(text []byte) (Parameters, error) {
	p := Defaults(Both)
	unit := p.Preassign.Unit
	p.Preassign.Unit = math.NaN() // which JSON does not have: it was left out
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return p, fmt.Errorf("the scheduler's parameters cannot be read: %s",
			strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := decoder.Token(); err != io.EOF {
		return p, fmt.Errorf("the scheduler's parameters cannot be read: there is more after the JSON " +
			"document")
	}
	if math.IsNaN(p.Preassign.Unit) {
		p.Preassign.Unit = unit
		if p.Metric == Operations {
			p.Preassign.Unit = 1
		}
	}
	return p.checked()
}

// Validate answers with a *ParameterError for the first that is not allowed.
func (p Parameters) Validate() error {
	_, err := p.checked()
	return err
}

// checked returns a copy with an empty metric and empty choices filled in.
func (p Parameters) checked() (Parameters, error) {
	if p.Choices == "" {
		p.Choices = HomeRandom
	}
	if p.Metric == "" {
		p.Metric = Bytes
	}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	within := func(v, least, most float64) bool { return v >= least && v <= most }
	for _, c := range []struct {
		ok                   bool
		name, value, allowed string
	}{
		{slices.Contains(Policies, p.Scheduler), "scheduler", strconv.Quote(string(p.Scheduler)),
			fmt.Sprintf("one of %q", Policies)},
		{p.Choices == HomeRandom || p.Choices == RandomRandom, "choices",
			strconv.Quote(string(p.Choices)), fmt.Sprintf("%q or %q", HomeRandom, RandomRandom)},
		{p.Metric == Bytes || p.Metric == Operations, "metric", strconv.Quote(string(p.Metric)),
			fmt.Sprintf("%q or %q", Bytes, Operations)},
		{p.MinWrite >= 0, "min_write", strconv.FormatInt(p.MinWrite, 10), "0 and more bytes"},
		{p.CacheLifetime >= 0, "cache_lifetime", time.Duration(p.CacheLifetime).String(), "0 and more"},
		{within(float64(p.CacheSize), 0, 1024), "cache_size", strconv.Itoa(p.CacheSize), "0 to 1024"},
		{within(p.Preassign.Unit, 1e-9, 1e18), "preassign.unit", number(p.Preassign.Unit),
			"1e-9 to 1e18 bytes or operations"},
		{within(p.Preassign.Prior, 0, 1), "preassign.prior", number(p.Preassign.Prior), "0 to 1"},
		{within(p.Preassign.Weight, 0, 1e9), "preassign.weight", number(p.Preassign.Weight),
			"0 to 1e9 probes"},
		{p.Preassign.Lifetime > 0, "preassign.lifetime", time.Duration(p.Preassign.Lifetime).String(),
			"a time above 0"},
		{within(float64(p.Prequal.Probes), 1, 64), "prequal.probes", strconv.Itoa(p.Prequal.Probes),
			"1 to 64"},
		{within(float64(p.Prequal.Pool), 1, 1024), "prequal.pool", strconv.Itoa(p.Prequal.Pool),
			"1 to 1024"},
		{p.Prequal.Age > 0, "prequal.age", time.Duration(p.Prequal.Age).String(), "a time above 0"},
		{within(p.Prequal.Quantile, 0, 1), "prequal.quantile", number(p.Prequal.Quantile), "0 to 1"},
	} {
		if !c.ok {
			return p, &ParameterError{c.name, c.value, c.allowed}
		}
	}
	return p, nil
}
