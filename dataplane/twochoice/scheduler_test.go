package twochoice

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"hotbed/dataplane/tests/must"
)

// newScheduler returns a scheduler with its queues, which only the oracle uses.
func newScheduler(tb testing.TB, p Parameters, servers Servers, seed uint64) (Scheduler, *Queues) {
	tb.Helper()
	queues := NewQueues(servers)
	s, err := New(p, servers, rand.NewPCG(seed, 2), queues)
	must.Succeed(tb, err)
	return s, queues
}

// group is one group of writes with its probes, readings and placements.
type group struct {
	writes   []Write
	probes   []Probe
	readings []Reading
	placed   []Placement
}

// send passes a group of writes through a scheduler; `answer` returns a server's reading.
func send(s Scheduler, now time.Duration, writes []Write, answer func(Server) Reading, cached []Reading) group {
	g := group{writes: writes, probes: s.Probes(writes, nil)}
	for _, p := range g.probes {
		r := answer(p.Server)
		r.Server = p.Server
		g.readings = append(g.readings, r)
	}
	g.placed = s.Place(now, writes, g.probes, g.readings, cached, nil)
	return g
}

func TestEveryWriteIsPlacedOnce(t *testing.T) {
	for _, policy := range Policies {
		for _, choices := range []Choices{HomeRandom, RandomRandom} {
			p := Defaults(policy)
			p.Choices = choices
			random := rand.New(rand.NewPCG(1, 1))
			for trial := range 60 {
				servers := Servers(1 + random.IntN(20))
				s, _ := newScheduler(t, p, servers, uint64(trial))
				for round := range 10 {
					writes := make([]Write, random.IntN(12))
					for i := range writes {
						writes[i] = Write{Server(random.IntN(int(servers))), 1 + random.Int64N(4096)}
					}
					g := send(s, time.Duration(round)*time.Second/3, writes, func(Server) Reading {
						return Reading{Answered: random.IntN(5) > 0, Load: float64(random.IntN(10)),
							InFlight: int32(random.IntN(9))}
					}, []Reading{{Server: Server(random.IntN(int(servers))), Answered: true, Load: 2}})
					checkGroup(t, p, servers, g)
				}
				if n := s.Stats(); n.Redirected > n.Writes || n.Unanswered > n.Probes || n.Share() > 1 {
					t.Fatalf("counts are %+v", n)
				}
			}
		}
	}
}

// checkGroup checks the properties that hold for every scheduler.
func checkGroup(t *testing.T, p Parameters, servers Servers, g group) {
	t.Helper()
	if len(g.placed) != len(g.writes) {
		t.Fatalf("%s: %d writes, %d placements", p.Scheduler, len(g.writes), len(g.placed))
	}
	used := map[int32]bool{}
	for i, one := range g.placed {
		w := g.writes[i]
		if one.Server < 0 || int(one.Server) >= int(servers) ||
			(w.Bytes < p.MinWrite || p.Scheduler == Fixed) && one.Server != w.Home {
			t.Fatalf("%s: write %d of %d bytes goes to server %d", p.Scheduler, i, w.Bytes, one.Server)
		}
		if one.Probe < 0 {
			continue
		}
		probe := g.probes[one.Probe]
		if used[one.Probe] || probe.Server != one.Server || !g.readings[one.Probe].Answered ||
			(p.Scheduler != Prequal && probe.Write >= 0 && int(probe.Write) != i) {
			t.Fatalf("%s: write %d goes to %d by probe %d: %v", p.Scheduler, i, one.Server, one.Probe, probe)
		}
		used[one.Probe] = true
	}
	seen := map[[2]int32]bool{}
	for _, probe := range g.probes {
		key := [2]int32{int32(probe.Server), probe.Write}
		if seen[key] || probe.Bytes < p.MinWrite {
			t.Fatalf("%s: probes are %v", p.Scheduler, g.probes)
		}
		seen[key] = true
	}
}

func TestTwoChoiceTakesTheLessLoadedOfTwo(t *testing.T) {
	for _, choices := range []Choices{HomeRandom, RandomRandom} {
		p := Defaults(TwoChoice)
		p.Choices = choices
		s, _ := newScheduler(t, p, 10, 3)
		chosen := map[Server]int{}
		for round := range 500 {
			writes := []Write{{Server(round % 10), 1 << 20}, {Server(round % 7), 1 << 20}}
			g := send(s, 0, writes, func(s Server) Reading { return Reading{Answered: true, Load: float64(s / 2)} }, nil)
			for i, one := range g.placed {
				a, b := g.probes[2*i].Server, g.probes[2*i+1].Server
				want := a // at equal loads the first, which is home if home is a candidate
				if b/2 < a/2 {
					want = b
				}
				if a == b || one.Server != want || (choices == HomeRandom && a != writes[i].Home) {
					t.Fatalf("%s: of %d and %d it took %d", choices, a, b, one.Server)
				}
				chosen[one.Server]++
			}
		}
		if len(chosen) < 8 {
			t.Fatalf("%s: only %v were ever chosen", choices, chosen)
		}
	}
}

func TestCollaborativeTakesTheLeastLoadedOfAll(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 4))
		p := Defaults(Collaborative)
		if seed%2 == 0 {
			p.Choices = RandomRandom
		}
		servers := 2 + random.IntN(40)
		s, _ := newScheduler(t, p, Servers(servers), seed)
		writes := make([]Write, 1+random.IntN(16))
		homes := map[Server]bool{}
		for i := range writes {
			writes[i] = Write{Server(random.IntN(servers)), 1 << 20}
			homes[writes[i].Home] = true
		}
		load := func(s Server) float64 { return float64((int(s)*7 + int(seed)) % 13) }
		cached := []Reading{{Server: Server(random.IntN(servers)), Answered: true, Load: -1}}
		g := send(s, 0, writes, func(s Server) Reading { return Reading{Answered: true, Load: load(s)} }, cached)
		if want := min(2*len(writes), servers); len(g.probes) != want {
			t.Fatalf("%d writes: %d of %d servers were asked", len(writes), len(g.probes), servers)
		}
		loads := map[Server]float64{cached[0].Server: -1}
		for _, probe := range g.probes {
			loads[probe.Server] = load(probe.Server)
			delete(homes, probe.Server)
		}
		if p.Choices == HomeRandom && len(homes) > 0 {
			t.Fatalf("homes %v were not asked", homes)
		}
		var all, got []float64
		for _, l := range loads {
			all = append(all, l)
		}
		slices.Sort(all)
		taken, kept := map[Server]int{}, map[Server]bool{}
		for i, one := range g.placed {
			got = append(got, loads[one.Server])
			taken[one.Server]++
			kept[one.Server] = kept[one.Server] || one.Server == writes[i].Home
		}
		// Each of the k least loaded takes one write; with fewer servers than writes, in turns.
		var want []float64
		for len(want) < len(writes) {
			want = append(want, all[:min(len(all), len(writes)-len(want))]...)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: chosen are loads %v of %v", seed, got, all)
		}
		for i, w := range writes { // a chosen server keeps a write that is at home there
			if taken[w.Home] > 0 && !kept[w.Home] {
				t.Fatalf("server %d is chosen, and keeps no write of its own such as %d", w.Home, i)
			}
		}
	}
}

func TestEqualLoadsAreSpreadThoughAllServersAreAsked(t *testing.T) {
	for _, policy := range []Policy{Uniform, TwoChoice, Collaborative, Prequal} {
		s, _ := newScheduler(t, Simulated(policy), 8, 1)
		chosen := make([]int, 8)
		for i := range 2000 {
			g := send(s, time.Duration(i)*time.Hour, []Write{{0, 1 << 20}, {0, 1 << 20}, {0, 1 << 20}},
				func(Server) Reading { return Reading{Answered: true, Load: 7} }, nil)
			for _, one := range g.placed {
				chosen[one.Server]++
			}
		}
		for server, n := range chosen[1:] { // server 0 is home, so it wins its own ties
			if n < 300 || n > 1000 {
				t.Errorf("%s: server %d is chosen %d of 6000 times: %v", policy, server+1, n, chosen)
			}
		}
	}
}

func TestTheOracleJoinsTheShortestQueue(t *testing.T) {
	s, queues := newScheduler(t, Simulated(Oracle), 7, 1)
	random := rand.New(rand.NewPCG(8, 8))
	lengths := make([]float64, 7)
	for i := range lengths {
		lengths[i] = float64(random.IntN(20))
		queues.Set(Server(i), lengths[i])
	}
	for range 300 {
		g := send(s, 0, []Write{{Server(random.IntN(7)), 1024}}, nil, nil)
		at := g.placed[0].Server
		if least := slices.Min(lengths); lengths[at] != least {
			t.Fatalf("it joined %d of %v", at, lengths)
		}
		lengths[at] += 1024
		if random.IntN(3) == 0 { // one write is done
			at = Server(random.IntN(7))
			lengths[at] = max(0, lengths[at]-1024)
			queues.Set(at, lengths[at])
		}
	}
	if _, err := New(Simulated(Oracle), 7, rand.NewPCG(1, 1), nil); err == nil {
		t.Fatal("an oracle without queues is taken")
	}
}

func TestPrequalGoesByTheHotColdRule(t *testing.T) {
	p := Simulated(Prequal)
	s := &prequal{base: base{p: p, servers: 20, random: rand.NewPCG(1, 1)}}
	hear := func(now time.Duration, server Server, inFlight int32, latency time.Duration) {
		s.remember(now, &Reading{Server: server, Answered: true, InFlight: inFlight, Latency: latency}, -1)
	}
	placeOne := func(now time.Duration) Server {
		return s.Place(now, []Write{{0, 1 << 20}}, nil, nil, nil, nil)[0].Server
	}
	if got := placeOne(0); got != 0 || s.Stats().Blind != 1 {
		t.Fatalf("with an empty pool a write goes to %d", got)
	}
	hear(0, 1, 1, 5*time.Millisecond)
	hear(0, 2, 1, 3*time.Millisecond)
	hear(0, 3, 2, 4*time.Millisecond)
	hear(0, 4, 9, time.Millisecond)
	s.p.Prequal.Quantile = 0.5 // of the four: above 2 is hot
	if got := placeOne(0); got != 2 {
		t.Fatalf("of the cold the write goes to %d, and 2 is quickest", got)
	}
	// The oldest answer (of 1) was forgotten; 2 counts one more operation in flight.
	if len(s.pool) != 3 || s.pool[0].reading.Server != 2 || s.pool[0].reading.InFlight != 2 {
		t.Fatalf("the pool is %v", s.pool)
	}
	if got := placeOne(0); got != 2 {
		t.Fatalf("then the write goes to %d", got)
	}
	// The worst was forgotten: 4 is hot and has the most in flight.
	if len(s.pool) != 2 || slices.ContainsFunc(s.pool, func(p pooled) bool { return p.reading.Server == 4 }) {
		t.Fatalf("the pool is %v", s.pool)
	}
	// All answers are too old.
	if got := placeOne(2 * time.Second); got != 0 || len(s.pool) != 0 {
		t.Fatalf("by answers of two seconds ago the write goes to %d", got)
	}
	for i := range 30 {
		hear(3*time.Second, Server(i%20), int32(i), 0)
	}
	if len(s.pool) != p.Prequal.Pool {
		t.Fatalf("the pool has %d answers", len(s.pool))
	}
}
