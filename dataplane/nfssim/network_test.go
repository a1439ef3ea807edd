package nfssim

import (
	"math"
	"testing"
	"time"

	"hotbed/dataplane/enforcer"
	"hotbed/dataplane/internal/traces"
)

// TestASmallMessageOvertakesALargeOne except for one frame at each shared link: strict priority
// interrupts no frame. In the order of arrival it waits for the large message's whole rest.
func TestASmallMessageOvertakesALargeOne(t *testing.T) {
	const frame = 12304 // ns, of 1538 bytes at a gigabit
	jobs := listed{
		"high": {traces.Request{At: 2 * ms, Size: 4096, Read: true}},
		"low":  {traces.Request{At: 0, Size: 1 << 20}}, // a write: 1,153,633.6 bytes, 9.229 ms
	}
	alone := 302.4 * 8 // ns on a link
	for policy, want := range map[enforcer.Policy]float64{
		// The client's own link is free; the server's port is busy with the other client's frames.
		enforcer.PM: 2*alone + frame/2, enforcer.None: 2*alone + frame/2} {
		s := connected(one(enforcer.None, "high", "low"), 125e6, policy)
		r := mustRun(t, s, jobs)
		if got := r.Workloads[0].Stages["network-in"].Max * 1e9; math.Abs(got-want) > frame/2+2 {
			t.Errorf("%s: the small message took %g ns, want %g within half a frame", policy, got, want)
		}
	}
	// From one host, the whole large message is ahead of the small one without priorities.
	s := connected(one(enforcer.None, "high", "low"), 125e6, enforcer.None)
	for _, policy := range []enforcer.Policy{enforcer.PM, enforcer.None} {
		shared := s
		shared.Links = append([]Link{}, s.Links...)
		for i := range shared.Links {
			l := &shared.Links[i]
			l.Parameters.Policy = policy
			l.Parameters.Workloads = nil
			for priority, name := range []string{"high", "low"} {
				for _, way := range []string{"/in", "/out"} {
					l.Parameters.Workloads = append(l.Parameters.Workloads,
						enforcer.Workload{Name: name + way, Priority: priority + 1})
				}
			}
		}
		shared.Workloads = append([]Workload{}, s.Workloads...)
		shared.Workloads[1].In = shared.Workloads[0].In
		took := nanoseconds(mustRun(t, shared, jobs).Workloads[0].Stages["network-in"].Max)
		if policy == enforcer.PM && took > time.Duration(2*alone)+2*frame {
			t.Errorf("%s: %v", policy, took)
		}
		if policy == enforcer.None && took < 7*ms {
			t.Errorf("%s: %v, which is before the large one", policy, took)
		}
	}
}

// TestAHostSendsRequestsAndReplies on one link: a server's reply and a request to another server.
func TestAHostSendsRequestsAndReplies(t *testing.T) {
	s := one(enforcer.None, "asks", "serves")
	flows := func(names ...string) enforcer.Parameters {
		p := enforcer.Parameters{Policy: enforcer.PM, Depth: 1}
		for i, name := range names {
			p.Workloads = append(p.Workloads, enforcer.Workload{Name: name, Priority: i + 1})
		}
		return p
	}
	s.Links = []Link{{Name: "h->x", Rate: 1e6, Parameters: flows("asks/in", "serves/out")}}
	s.Workloads[0].In = []string{"h->x"}
	s.Workloads[1].Out = []string{"h->x"}
	r := mustRun(t, s, listed{"asks": {traces.Request{Size: 1000}}, "serves": {traces.Request{Size: 1000, Read: true}}})
	// Both are 1300 bytes and 1.3 ms; the reply is ready after 1 us and waits.
	if in, out := r.Workloads[0].Stages["network-in"].Max, r.Workloads[1].Stages["network-out"].Max; math.Abs(in-0.0013) > 1e-9 ||
		math.Abs(out-0.002599) > 1e-9 {
		t.Errorf("%g and %g s", in, out)
	}
	if l := r.Links[0]; l.Pieces != 2 || l.Cost != 2600 || l.MaxQueue != 2 {
		t.Errorf("%+v", l)
	}
}
