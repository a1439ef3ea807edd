package nfssim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"hotbed/dataplane/enforcer"
	"hotbed/dataplane/internal/traces"
	"hotbed/dataplane/tests/must"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// perByte is the profile of a device with one nanosecond of work per byte.
const perByte = `{"type": "storageConstant", "base": 0, "readBandwidth": 1e9, "writeBandwidth": 1e9}`

// listed opens traces by the names of workloads.
type listed map[string][]traces.Request

func (l listed) open(w Workload) (traces.Trace, error) { return traces.Listed(l[w.Name]), nil }

// at returns a read with the given work at the given time.
func at(when, work time.Duration) traces.Request {
	return traces.Request{At: when, Size: int64(work), Read: true}
}

// one returns a scenario with one device, s:d, and no network. Priorities follow the order.
func one(policy enforcer.Policy, names ...string) Scenario {
	s := Scenario{Schema: Schema, Seed: 1, Frame: 1538,
		Profiles: map[string]json.RawMessage{"p": json.RawMessage(perByte)},
		Devices: []Device{{Name: "s:d", Charged: Estimate{"p", 1},
			Service:    Service{Estimate: Estimate{"p", 1}},
			Parameters: enforcer.Parameters{Policy: policy, Depth: 1}}}}
	for i, name := range names {
		s.Workloads = append(s.Workloads, Workload{Name: name, Network: "p", Device: "s:d"})
		s.Devices[0].Parameters.Workloads = append(s.Devices[0].Parameters.Workloads,
			enforcer.Workload{Name: name, Priority: i + 1})
	}
	return s
}

// connected adds links of a rate: one per workload's client, and a shared one at the server.
func connected(s Scenario, rate float64, policy enforcer.Policy) Scenario {
	links := map[string]*Link{}
	var names []string
	pass := func(link, flow string, priority int) string {
		if links[link] == nil {
			links[link] = &Link{Name: link, Rate: rate,
				Parameters: enforcer.Parameters{Policy: policy, Depth: 1}}
			names = append(names, link)
		}
		p := &links[link].Parameters
		p.Workloads = append(p.Workloads, enforcer.Workload{Name: flow, Priority: priority})
		return link
	}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		w.In = []string{pass(w.Name+"->x", w.Name+"/in", i+1), pass("x->s", w.Name+"/in", i+1)}
		w.Out = []string{pass("s->x", w.Name+"/out", i+1), pass("x->"+w.Name, w.Name+"/out", i+1)}
	}
	for _, name := range names {
		s.Links = append(s.Links, *links[name])
	}
	return s
}

func mustRun(t testing.TB, s Scenario, l listed) *Result {
	t.Helper()
	progress := 0.0
	r, err := Run(s, l.open, func(share float64) {
		if share < progress || share > 1 {
			t.Errorf("progress is %g after %g", share, progress)
		}
		progress = share
	})
	if err != nil || progress != 1 {
		t.Fatalf("%v at %g of the progress", err, progress)
	}
	return r
}

// longest returns the longest latency of each workload.
func longest(r *Result) map[string]time.Duration {
	found := map[string]time.Duration{}
	for _, w := range r.Workloads {
		found[w.Name] = nanoseconds(w.Whole.All.Max)
	}
	return found
}

// poisson returns a trace with exponential gaps and works.
func poisson(seed uint64, count int, gap, work time.Duration) []traces.Request {
	random := rand.New(rand.NewPCG(seed, 1))
	made := make([]traces.Request, count)
	now := time.Duration(0)
	for i := range made {
		made[i] = at(now, time.Duration(random.ExpFloat64()*float64(work)))
		made[i].Read = random.IntN(2) == 0
		now += time.Duration(random.ExpFloat64() * float64(gap))
	}
	return made
}

// text returns a result as JSON, without the run time.
func text(t *testing.T, r *Result) string {
	t.Helper()
	reported := *r
	reported.CPU, reported.Wall = 0, 0
	b, err := json.Marshal(reported)
	must.Succeed(t, err)
	return string(b)
}

func wantLongest(t *testing.T, r *Result, want map[string]time.Duration) {
	t.Helper()
	if got := longest(r); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the longest latencies are %v, want %v", got, want)
	}
}
