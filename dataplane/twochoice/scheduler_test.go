package twochoice

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// newScheduler returns a scheduler with its queues, which only the oracle uses.
func newScheduler(tb testing.TB, p Parameters, servers *Servers, seed uint64) (Scheduler, *Queues) {
	tb.Helper()
	queues := NewQueues(servers)
	s, err := New(p, servers, rand.NewPCG(seed, 2), queues)
	if err != nil {
		tb.Fatal(err)
	}
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
func send(tb testing.TB, s Scheduler, now time.Duration, writes []Write, answer func(Server) Reading,
	cached []Reading) group {
	tb.Helper()
	g := group{writes: writes}
	var err error
	if g.probes, err = s.Probes(now, writes, nil); err != nil {
		tb.Fatal(err)
	}
	for _, p := range g.probes {
		r := answer(p.Server)
		r.Server = p.Server
		g.readings = append(g.readings, r)
	}
	given := g.readings
	if !s.Waits() {
		given = nil
	}
	if g.placed, err = s.Place(now, writes, g.probes, given, cached, nil); err != nil {
		tb.Fatal(err)
	}
	if !s.Waits() {
		s.Heard(now, g.readings)
	}
	return g
}

// eachScheduler calls `call` for every policy and both choices.
func eachScheduler(t *testing.T, call func(t *testing.T, p Parameters)) {
	for _, policy := range Policies {
		for _, choices := range []Choices{HomeRandom, RandomRandom} {
			p := Defaults(policy)
			p.Choices = choices
			t.Run(string(policy)+" "+string(choices), func(t *testing.T) { call(t, p) })
		}
	}
	p := Defaults(Prequal)
	p.Prequal.Asynchronous = true
	t.Run("prequal asynchronous", func(t *testing.T) { call(t, p) })
}

func TestEveryWriteIsPlacedOnceOnAServerThatIsUp(t *testing.T) {
	eachScheduler(t, func(t *testing.T, p Parameters) {
		random := rand.New(rand.NewPCG(1, 1))
		for trial := range 60 {
			servers := Numbered(1 + random.IntN(20))
			for i := range servers.Len() {
				if random.IntN(4) == 0 && servers.UpLen() > 1 {
					if err := servers.SetUp(Server(i), false); err != nil {
						t.Fatal(err)
					}
				}
			}
			s, queues := newScheduler(t, p, servers, uint64(trial))
			for _, server := range servers.All() {
				if !servers.Up(server) {
					queues.Set(server, inf)
				}
			}
			for round := range 10 {
				writes := make([]Write, random.IntN(12))
				for i := range writes {
					writes[i] = Write{Server(random.IntN(servers.Len())), 1 + random.Int64N(4096)}
				}
				g := send(t, s, time.Duration(round)*time.Second/3, writes, func(Server) Reading {
					return Reading{Answered: random.IntN(5) > 0, Load: float64(random.IntN(10)),
						InFlight: int32(random.IntN(9))}
				}, []Reading{{Server: Server(random.IntN(servers.Len())), Answered: true, Load: 2}})
				checkGroup(t, p, servers, g)
			}
			if n := s.Stats(); n.Redirected > n.Writes || n.Unanswered > n.Probes || n.Share() > 1 {
				t.Fatalf("counts are %+v", n)
			}
		}
	})
}

// checkGroup checks the properties that hold for every scheduler.
func checkGroup(t *testing.T, p Parameters, servers *Servers, g group) {
	t.Helper()
	if len(g.placed) != len(g.writes) {
		t.Fatalf("%d writes, %d placements", len(g.writes), len(g.placed))
	}
	used := map[int32]bool{}
	for i, one := range g.placed {
		w := g.writes[i]
		// A write may stay at a home that is down: only home can acknowledge it.
		if one.Server != w.Home && !servers.Up(one.Server) {
			t.Fatalf("write %d goes to server %d, which is down", i, one.Server)
		}
		if (w.Bytes < p.MinWrite || p.Scheduler == Fixed) && one.Server != w.Home {
			t.Fatalf("write %d of %d bytes was redirected", i, w.Bytes)
		}
		if one.Probe < 0 {
			continue
		}
		probe := g.probes[one.Probe]
		if used[one.Probe] || probe.Server != one.Server ||
			(p.Scheduler != Prequal && probe.Write >= 0 && int(probe.Write) != i) {
			t.Fatalf("write %d goes to %d by probe %d: %v", i, one.Server, one.Probe, probe)
		}
		if !g.readings[one.Probe].Answered {
			t.Fatalf("write %d goes by a probe that was not answered", i)
		}
		used[one.Probe] = true
	}
	seen := map[[2]int32]bool{}
	for _, probe := range g.probes {
		key := [2]int32{int32(probe.Server), probe.Write}
		if seen[key] || !servers.Up(probe.Server) || probe.Bytes < p.MinWrite {
			t.Fatalf("probes are %v", g.probes)
		}
		seen[key] = true
	}
}

func TestTheSameSeedPlacesTheSame(t *testing.T) {
	eachScheduler(t, func(t *testing.T, p Parameters) {
		var runs [2][]Placement
		for run := range runs {
			servers := Numbered(50)
			s, _ := newScheduler(t, p, servers, 9)
			for round := range 20 {
				writes := []Write{{Server(round), 1 << 20}, {Server(2 * round), 1 << 20}, {3, 1 << 20}}
				g := send(t, s, time.Duration(round), writes, func(s Server) Reading {
					return Reading{Answered: true, Load: float64((7 * s) % 11), InFlight: int32(s % 5)}
				}, nil)
				runs[run] = append(runs[run], g.placed...)
			}
		}
		if !slices.Equal(runs[0], runs[1]) {
			t.Fatal("the same seed placed otherwise")
		}
	})
}

func TestAnUnknownHomeIsRefused(t *testing.T) {
	eachScheduler(t, func(t *testing.T, p Parameters) {
		s, _ := newScheduler(t, p, Numbered(4), 1)
		for _, home := range []Server{4, -1, maxServer + 5} {
			writes := []Write{{0, 1 << 20}, {home, 1 << 20}}
			var unknown *UnknownServerError
			if _, err := s.Probes(0, writes, nil); !errors.As(err, &unknown) || unknown.Server != home {
				t.Errorf("a home of %d is asked for: %v", home, err)
			}
			if _, err := s.Place(0, writes, nil, nil, nil, nil); !errors.As(err, &unknown) {
				t.Errorf("a home of %d is placed: %v", home, err)
			}
		}
		if s.Stats().Writes != 0 {
			t.Error("what was refused is counted")
		}
	})
}

func TestTwoChoiceTakesTheLessLoadedOfTwo(t *testing.T) {
	for _, choices := range []Choices{HomeRandom, RandomRandom} {
		p := Defaults(TwoChoice)
		p.Choices = choices
		servers := Numbered(10)
		s, _ := newScheduler(t, p, servers, 3)
		chosen := map[Server]int{}
		for round := range 500 {
			writes := []Write{{Server(round % 10), 1 << 20}, {Server(round % 7), 1 << 20}}
			g := send(t, s, 0, writes, func(s Server) Reading {
				return Reading{Answered: true, Load: float64(s / 2)}
			}, nil)
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
		servers := Numbered(2 + random.IntN(40))
		s, _ := newScheduler(t, p, servers, seed)
		writes := make([]Write, 1+random.IntN(16))
		homes := map[Server]bool{}
		for i := range writes {
			writes[i] = Write{Server(random.IntN(servers.Len())), 1 << 20}
			homes[writes[i].Home] = true
		}
		load := func(s Server) float64 { return float64((int(s)*7 + int(seed)) % 13) }
		cached := []Reading{{Server: Server(random.IntN(servers.Len())), Answered: true, Load: -1}}
		g := send(t, s, 0, writes, func(s Server) Reading {
			return Reading{Answered: true, Load: load(s)}
		}, cached)
		if want := min(2*len(writes), servers.Len()); len(g.probes) != want {
			t.Fatalf("%d writes: %d of %d servers were asked", len(writes), len(g.probes), servers.Len())
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
		taken := map[Server]int{}
		for _, one := range g.placed {
			got = append(got, loads[one.Server])
			taken[one.Server]++
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
			if taken[w.Home] > 0 && !slices.Contains(keptAt(g), w.Home) {
				t.Fatalf("server %d is chosen, and keeps no write of its own such as %d", w.Home, i)
			}
		}
	}
}

// keptAt returns the servers that keep writes at home.
func keptAt(g group) []Server {
	var out []Server
	for i, one := range g.placed {
		if one.Server == g.writes[i].Home {
			out = append(out, one.Server)
		}
	}
	return out
}

func TestEqualLoadsAreSpreadThoughAllServersAreAsked(t *testing.T) {
	for _, policy := range []Policy{TwoChoice, Collaborative, Prequal} {
		s, _ := newScheduler(t, Simulated(policy), Numbered(8), 1)
		chosen := make([]int, 8)
		for i := range 2000 {
			g := send(t, s, time.Duration(i)*time.Hour, []Write{{0, 1 << 20}, {0, 1 << 20}, {0, 1 << 20}},
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
	servers := Numbered(7)
	s, queues := newScheduler(t, Simulated(Oracle), servers, 1)
	random := rand.New(rand.NewPCG(8, 8))
	lengths := make([]float64, 7)
	for i := range lengths {
		lengths[i] = float64(random.IntN(20))
		queues.Set(Server(i), lengths[i])
	}
	for range 300 {
		g := send(t, s, 0, []Write{{Server(random.IntN(7)), 1024}}, nil, nil)
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
	for i, l := range lengths {
		queues.Set(Server(i), inf)
		if queues.Length(Server(i)) != inf || l < 0 {
			t.Fatal("a queue cannot be closed")
		}
	}
	if queues.Shortest() != NoServer {
		t.Fatal("there is a shortest of no queues")
	}
	if _, err := New(Simulated(Oracle), servers, rand.NewPCG(1, 1), nil); err == nil {
		t.Fatal("an oracle without queues is taken")
	}
}
