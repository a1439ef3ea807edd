// Package nfssim is PriorityMeister's system (Zhu et al., SoCC 2014, figure 2) on the event
// kernel's virtual clock: clients that replay traces, links and switch ports, and the devices of
// NFS servers. Each device and each link has an enforcer of package enforcer, with the same code
// that the NFS proxy drives on the wall clock.
//
// A request crosses three stages (section 3): its message to the server, in frames, over every link
// on the way; the device; the reply over every link on the way back. A link is a queue of frames,
// and so is a switch port. With the policy pm it is the network enforcer of section 4.6: token
// buckets at the first link of a way and strict priority by level at every link.
//
// See docs/prioritymeister.md, "Simulated".
package nfssim

import (
	"encoding/json"
	"fmt"

	"hotbed/dataplane/enforcer"
	"hotbed/dataplane/internal/limits"
)

// Schema is the version of the scenario and of the result.
const Schema = 1

// Sources is the digest of the simulator's sources, set by the linker.
var Sources string

// Scenario describes a simulation. Times are in seconds, sizes in bytes.
type Scenario struct {
	Schema int    `json:"schema"`
	Seed   uint64 `json:"seed"`
	// Duration, if above 0, is the end of arrivals; requests in progress are then completed.
	Duration float64 `json:"duration"`
	// Frame is the longest piece of a message on a link; 0 means whole messages.
	Frame float64 `json:"frame"`
	// Series, if above 0, is the length of the windows in which requests and misses are counted.
	Series float64 `json:"series"`
	// Preload reads all traces into memory before the simulation's run time is measured.
	Preload   bool                       `json:"preload,omitempty"`
	Profiles  map[string]json.RawMessage `json:"profiles"`
	Devices   []Device                   `json:"devices"`
	Links     []Link                     `json:"links"`
	Workloads []Workload                 `json:"workloads"`
}

// Estimate is a profile, and the device's speed relative to the profile. Work that depends on the
// previous request depends on the workload's own: a workload costs the same as alone, as plans
// assume.
type Estimate struct {
	Profile string  `json:"profile"`
	Speed   float64 `json:"speed"`
}

// Service is a device's actual service time.
type Service struct {
	Estimate
	// Noise is the coefficient of variation of a lognormal factor of mean 1; 0 for none.
	Noise float64 `json:"noise"`
}

// Device is a storage device; its enforcer's workloads are the scenario's workloads that use it.
type Device struct {
	Name string `json:"name"`
	// Charged is the enforcer's charge for a request.
	Charged    Estimate            `json:"charged"`
	Service    Service             `json:"service"`
	Parameters enforcer.Parameters `json:"parameters"`
}

// Link is one direction of a link: a host's, or a switch's port. Its enforcer's workloads have the
// scenario's names plus "/in" (to the server) or "/out"; costs are bytes.
type Link struct {
	Name       string              `json:"name"`
	Rate       float64             `json:"rate"` // bytes/s
	Parameters enforcer.Parameters `json:"parameters"`
}

// Workload is a client that replays a trace.
type Workload struct {
	Name  string `json:"name"`
	Trace string `json:"trace"`
	// Closed, if above 0, is the number of requests in flight, ignoring the trace's times (workload
	// L); with Repeat, the trace restarts at its end.
	Closed int  `json:"closed"`
	Repeat bool `json:"repeat"`
	// SLO is a latency in seconds; 0 for none.
	SLO float64 `json:"slo"`
	// Network is the name of the profile with the network costs.
	Network string `json:"network"`
	// In and Out are the links to the server and back; without links the stage takes no time.
	In     []string `json:"in"`
	Device string   `json:"device"`
	Out    []string `json:"out"`
}

// ParseScenario parses a scenario; the error is one sentence.
func ParseScenario(text []byte) (Scenario, error) {
	var s Scenario
	if err := limits.Decode(text, &s); err != nil {
		return s, fmt.Errorf("the scenario cannot be read: %w", err)
	}
	return s, s.check()
}

func (s Scenario) check() error {
	switch {
	case s.Schema != Schema:
		return fmt.Errorf("the scenario has schema %d; this program reads %d", s.Schema, Schema)
	case !(s.Duration >= 0 && s.Duration <= 1e9):
		return fmt.Errorf("duration is %g; write seconds, up to 1e9", s.Duration)
	case !(s.Frame == 0 || s.Frame >= 64 && s.Frame <= 1e12):
		return fmt.Errorf("frame is %g; write 64 bytes or more, or 0 for whole messages", s.Frame)
	case !(s.Series == 0 || s.Series >= 1e-3):
		return fmt.Errorf("series is %g; write seconds, at least 0.001, or 0 for none", s.Series)
	case len(s.Devices) == 0 || len(s.Workloads) == 0:
		return fmt.Errorf("there is no device or no workload; name at least one of each")
	}
	for _, d := range s.Devices {
		if err := d.check(s.Profiles); err != nil {
			return fmt.Errorf("device %s: %w", d.Name, err)
		}
	}
	for _, l := range s.Links {
		if !(l.Rate >= 1 && l.Rate <= 1e15) {
			return fmt.Errorf("link %s: rate is %g; write bytes/s, at least 1", l.Name, l.Rate)
		}
	}
	for _, w := range s.Workloads {
		if err := w.check(s); err != nil {
			return fmt.Errorf("workload %s: %w", w.Name, err)
		}
	}
	return nil
}

func (d Device) check(profiles map[string]json.RawMessage) error {
	if err := d.Charged.check(profiles); err != nil {
		return fmt.Errorf("charged: %w", err)
	}
	if err := d.Service.check(profiles); err != nil {
		return fmt.Errorf("service: %w", err)
	}
	if !(d.Service.Noise >= 0 && d.Service.Noise <= 10) {
		return fmt.Errorf("noise is %g; write a coefficient of variation from 0 to 10", d.Service.Noise)
	}
	return nil
}

func (e Estimate) check(profiles map[string]json.RawMessage) error {
	if _, ok := profiles[e.Profile]; !ok {
		return fmt.Errorf("there is no profile %q", e.Profile)
	}
	if !(e.Speed > 0 && e.Speed <= 1e9) {
		return fmt.Errorf("speed is %g; write a number above 0", e.Speed)
	}
	return nil
}

func (w Workload) check(s Scenario) error {
	switch {
	case w.Closed < 0 || w.Closed > 1<<16:
		return fmt.Errorf("closed is %d; write 0 (open loop) to %d", w.Closed, 1<<16)
	case w.Repeat && (w.Closed == 0 || s.Duration == 0):
		return fmt.Errorf("only a closed loop can repeat its trace, and only with a duration")
	case !(w.SLO >= 0 && w.SLO <= 1e9):
		return fmt.Errorf("slo is %g; write seconds, or 0 for none", w.SLO)
	}
	if _, ok := s.Profiles[w.Network]; !ok {
		return fmt.Errorf("there is no profile %q", w.Network)
	}
	return nil
}
