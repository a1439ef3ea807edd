package twochoice

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// burst sends 1000 writes at once to 100 servers, ten from each of 100 nodes, after rounds that
// train P(load). It returns the load of the most loaded server. A tenth are stragglers.
func burst(t *testing.T, policy Policy) float64 {
	t.Helper()
	p := Simulated(policy)
	servers := Numbered(100)
	s, queues := newScheduler(t, p, servers, 5)
	acceptance := NewAcceptance(p.Preassign)
	var most float64
	for round := range 6 {
		acceptance.Freeze(round == 5)
		detectors := make([]*Detector, servers.Len())
		random := rand.New(rand.NewPCG(uint64(round), 6))
		for i := range detectors {
			detectors[i], _ = NewDetector(p, Server(i), acceptance)
			load := int64(10 + random.IntN(4))
			if i%10 == 0 {
				load *= 5
			}
			detectors[i].Add(load, load<<20)
			queues.Set(Server(i), float64(load<<20))
		}
		groups := make([]group, 100)
		for i := range groups { // all nodes probe before any decides
			g := &groups[i]
			for k := range 10 {
				g.writes = append(g.writes, Write{Server((10*i + k) % 100), 1 << 20})
			}
			g.probes, _ = s.Probes(0, g.writes, nil)
			for _, probe := range g.probes {
				r, _ := detectors[probe.Server].Probe(0, probe.Bytes, nil)
				g.readings = append(g.readings, r)
			}
		}
		for i := range groups {
			g := &groups[i]
			g.placed, _ = s.Place(0, g.writes, g.probes, g.readings, nil, nil)
			chosen := map[int32]bool{}
			for _, one := range g.placed {
				chosen[one.Probe] = true
			}
			for k, r := range g.readings {
				detectors[r.Server].Settle(0, r.Ticket, chosen[int32(k)])
			}
			for _, one := range g.placed {
				var ticket Ticket
				if one.Probe >= 0 {
					ticket = g.readings[one.Probe].Ticket
				}
				detectors[one.Server].Begin(0, ticket, 1<<20)
			}
		}
		most = 0
		for _, d := range detectors {
			_, bytes := d.InFlight()
			most = max(most, float64(bytes)/(1<<20))
			if d.Load() != float64(bytes) {
				t.Fatalf("%s: after all came something is expected still: %g", policy, d.Load())
			}
		}
	}
	return most
}

func TestABurstIsSpreadAsThePaperSays(t *testing.T) { // figure 4, scaled down
	most := map[Policy]float64{}
	for _, policy := range []Policy{Fixed, TwoChoice, Collaborative, Preassign, Both, Oracle} {
		most[policy] = burst(t, policy)
	}
	ordered := []Policy{Oracle, Both, Preassign, TwoChoice, Fixed}
	if !slices.IsSortedFunc(ordered, func(a, b Policy) int { return cmp.Compare(most[a], most[b]) }) {
		t.Fatalf("the most loaded servers have %v", most)
	}
	if most[Both] > 1.25*most[Oracle] || most[Collaborative] < most[Both] {
		t.Fatalf("the most loaded servers have %v", most)
	}
}
