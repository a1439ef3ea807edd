package nfssim

import (
	"fmt"
	"math"
	"time"

	"hotbed/dataplane/enforcer"
	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/internal/traces"
	"hotbed/dataplane/sim"
)

// steps is the number of progress reports while requests arrive.
const steps = 200

// Opener opens the trace of a workload.
type Opener func(w Workload) (traces.Trace, error)

// FromFile opens a workload's trace from the scenario's path; malformed rows are left out.
func FromFile(w Workload) (traces.Trace, error) { return traces.Open(w.Trace) }

// Run simulates a scenario until every request has been answered. The same scenario and
// traces give the same result. Run periodically calls `progress` with the completed share of the
// arrivals' time. The error is one sentence.
func Run(scenario Scenario, open Opener, progress func(share float64)) (*Result, error) {
	s, err := build(scenario, open)
	if err != nil {
		return nil, err
	}
	wall, cpu := time.Now(), command.ProcessorTime()
	for _, c := range s.clients {
		c.feed = c.trace.Feed(c.spec.Repeat)
		defer c.feed.Close()
	}
	length := s.length()
	k := s.kernel
	for i, c := range s.clients {
		if c.spec.Closed == 0 {
			k.Post(0, (*arrival)(s), uint64(i))
			continue
		}
		k.Post(0, sim.Func(func(k *sim.Kernel, _ uint64) { s.refill(k, c) }), 0)
	}
	for step := range steps {
		k.RunUntil(length / steps * time.Duration(step+1))
		if s.err != nil {
			return nil, s.err
		}
		progress(float64(step+1) / steps)
	}
	k.RunUntil(length)
	for _, q := range s.queues() {
		q.byLimit = q.busyUntil(k.Now())
	}
	if s.err == nil {
		k.Run()
	}
	if s.err != nil {
		return nil, s.err
	}
	r := s.result(length)
	r.CPU, r.Wall = (command.ProcessorTime() - cpu).Seconds(), time.Since(wall).Seconds()
	return r, nil
}

// length returns the end of the arrivals, as far as known in advance: without a duration, the end
// of the longest open loop.
func (s *run) length() time.Duration {
	if s.scenario.Duration > 0 {
		return nanoseconds(s.scenario.Duration)
	}
	var longest time.Duration
	for _, c := range s.clients {
		if c.spec.Closed == 0 {
			longest = max(longest, c.length)
		}
	}
	return longest
}

func (s *run) queues() []*queue {
	all := append([]*queue{}, s.links...)
	for _, d := range s.devices {
		all = append(all, d.queue)
	}
	return all
}

func build(scenario Scenario, open Opener) (*run, error) {
	if err := scenario.check(); err != nil {
		return nil, err
	}
	profiles, err := parseProfiles(scenario.Profiles)
	if err != nil {
		return nil, err
	}
	s := &run{scenario: scenario, kernel: sim.New(), frame: scenario.Frame}
	if s.frame == 0 {
		s.frame = math.Inf(1)
	}
	links, devices := map[string]*queue{}, map[string]*device{}
	for _, spec := range scenario.Links {
		q, err := newQueue(spec.Name, spec.Parameters)
		if err != nil {
			return nil, fmt.Errorf("link %s: %w", spec.Name, err)
		}
		if links[spec.Name] != nil {
			return nil, fmt.Errorf("two links are called %s: names must differ", spec.Name)
		}
		rate := spec.Rate
		q.seconds = func(r *enforcer.Request) float64 { return r.Cost / rate }
		q.leave = s.onward
		links[spec.Name] = q
		s.links = append(s.links, q)
	}
	for _, spec := range scenario.Devices {
		d, err := newDevice(spec, profiles, scenario.Seed)
		if err != nil {
			return nil, fmt.Errorf("device %s: %w", spec.Name, err)
		}
		if devices[spec.Name] != nil {
			return nil, fmt.Errorf("two devices are called %s: names must differ", spec.Name)
		}
		d.leave = s.served
		devices[spec.Name] = d
		s.devices = append(s.devices, d)
	}
	for _, spec := range scenario.Workloads {
		c := &client{spec: spec, network: profiles[spec.Network].Network}
		if err := c.connect(links, devices); err != nil {
			return nil, fmt.Errorf("workload %s: %w", spec.Name, err)
		}
		if c.trace, err = open(spec); err == nil && scenario.Preload {
			err = c.preload()
		}
		if err != nil {
			return nil, fmt.Errorf("workload %s: %w", spec.Name, err)
		}
		s.clients = append(s.clients, c)
	}
	s.plan()
	return s, nil
}

// preload reads the trace into memory.
func (c *client) preload() error {
	requests := make([]traces.Request, 0, c.trace.Requests)
	for r, err := range c.trace.Each() {
		if err != nil {
			return err
		}
		requests = append(requests, r)
	}
	report := c.trace.Report
	c.trace = traces.Listed(requests)
	c.trace.Report = report
	return nil
}

// connect finds the queues on the way of a workload's requests.
func (c *client) connect(links map[string]*queue, devices map[string]*device) error {
	for _, way := range []struct {
		names  []string
		suffix string
		hops   *[]hop
	}{{c.spec.In, "/in", &c.in}, {c.spec.Out, "/out", &c.out}} {
		for _, name := range way.names {
			link := links[name]
			if link == nil {
				return fmt.Errorf("there is no link %q", name)
			}
			flow, ok := link.flows[c.spec.Name+way.suffix]
			if !ok {
				return fmt.Errorf("link %s has no workload %q", name, c.spec.Name+way.suffix)
			}
			*way.hops = append(*way.hops, hop{link, flow})
		}
	}
	c.device = devices[c.spec.Device]
	if c.device == nil {
		return fmt.Errorf("there is no device %q", c.spec.Device)
	}
	flow, ok := c.device.flows[c.spec.Name]
	if !ok {
		return fmt.Errorf("device %s has no workload of this name", c.spec.Device)
	}
	c.flow = flow
	c.charge = c.device.charged.Estimator()
	c.real = c.device.real.Estimator()
	return nil
}

// plan sets the end of the arrivals and the start of the second half of each workload's replay. The
// paper's experiments count only that half (section 5.3). A closed loop runs as long as all other
// loops, or for the duration.
func (s *run) plan() {
	limit := sim.Forever
	if s.scenario.Duration > 0 {
		limit = nanoseconds(s.scenario.Duration)
	}
	for _, c := range s.clients {
		c.until = limit
		c.length = min(c.trace.Length, limit)
	}
	whole := s.length()
	for _, c := range s.clients {
		if c.spec.Closed > 0 {
			c.length = whole
		}
		c.half = c.length/2 + c.length%2
		c.tally = newTally(nanoseconds(c.spec.SLO), nanoseconds(s.scenario.Series))
	}
}
