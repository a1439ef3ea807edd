package twochoice

import (
	"cmp"
	"slices"
	"time"
)

// prequal is the hot-cold rule of Prequal (Wydrowski, Kleinberg, Rumble and Archer, NSDI 2024).
// Each write probes a few random servers, and a pool remembers the answers for a while. A server is
// hot if its operations in flight exceed a quantile of the pool. A write goes to the cold server
// with the lowest expected latency, or if all are hot to the server with the fewest operations in
// flight. Each write removes one answer from the pool, alternately the oldest and the worst, and
// adds one operation to the chosen server's count.
type prequal struct {
	base
	pool   []pooled // oldest first
	worst  bool     // next removal takes the worst answer
	levels []int32
	marks  marks
}

type pooled struct {
	reading Reading
	at      time.Duration
	probe   int32 // index in the current group's probes, else -1
}

// leastPool is the minimum pool size for a write without answers of its own.
const leastPool = 2

func (s *prequal) Probes(writes []Write, into []Probe) []Probe {
	for i := range writes {
		w := &writes[i]
		if s.small(w) {
			continue
		}
		begin, wanted := len(into), min(s.p.Prequal.Probes, int(s.servers))
		first := s.first(w)
		s.marks.set(first)
		into = append(into, Probe{first, int32(i), w.Bytes})
		for len(into)-begin < wanted {
			if server := s.servers.draw(s.random); !s.marks.has(server) {
				s.marks.set(server)
				into = append(into, Probe{server, int32(i), w.Bytes})
			}
		}
		for _, probe := range into[begin:] {
			s.marks.clear(probe.Server)
		}
		s.stats.Probes += uint64(len(into) - begin)
	}
	return into
}

func (s *prequal) Place(now time.Duration, writes []Write, probes []Probe, readings, _ []Reading,
	into []Placement) []Placement {
	s.unanswered(probes, readings)
	at := 0
	for i := range writes {
		answers := 0
		for ; at < len(probes) && probes[at].Write == int32(i); at++ {
			if at < len(readings) && readings[at].Answered {
				s.remember(now, &readings[at], int32(at))
				answers++
			}
		}
		into = append(into, s.placeOne(now, &writes[i], answers))
	}
	for i := range s.pool {
		s.pool[i].probe = -1
	}
	return into
}

func (s *prequal) placeOne(now time.Duration, w *Write, answers int) Placement {
	if s.small(w) {
		return s.home(w)
	}
	s.pool = slices.DeleteFunc(s.pool, func(p pooled) bool { return now-p.at > time.Duration(s.p.Prequal.Age) })
	if len(s.pool) == 0 || (answers == 0 && len(s.pool) < leastPool) {
		return s.home(w)
	}
	chosen := &s.pool[s.pick(w)]
	placed := s.place(w, chosen.reading.Server, chosen.probe)
	chosen.probe = -1
	chosen.reading.InFlight++
	s.forget()
	return placed
}

// remember adds an answer; a newer answer of a server replaces the older.
func (s *prequal) remember(now time.Duration, r *Reading, probe int32) {
	at := slices.IndexFunc(s.pool, func(p pooled) bool { return p.reading.Server == r.Server })
	if at < 0 && len(s.pool) >= s.p.Prequal.Pool {
		at = 0
	}
	if at >= 0 {
		s.pool = slices.Delete(s.pool, at, at+1)
	}
	s.pool = append(s.pool, pooled{*r, now, probe})
}

// limit returns the maximum operations in flight of a cold server: the quantile of the pool.
func (s *prequal) limit() int32 {
	s.levels = s.levels[:0]
	for i := range s.pool {
		s.levels = append(s.levels, s.pool[i].reading.InFlight)
	}
	slices.Sort(s.levels)
	return s.levels[min(int(s.p.Prequal.Quantile*float64(len(s.levels))), len(s.levels)-1)]
}

// pick returns the pool index of the answer that the rule takes. Ties go to fewer operations in
// flight, then to a write's home, then to the newer answer.
func (s *prequal) pick(w *Write) int {
	limit := s.limit()
	order := func(a, b *pooled) int {
		hotA, hotB := a.reading.InFlight > limit, b.reading.InFlight > limit
		switch {
		case hotA != hotB:
			if hotA {
				return 1
			}
			return -1
		case !hotA:
			if c := cmp.Compare(a.reading.Latency, b.reading.Latency); c != 0 {
				return c
			}
		}
		if c := cmp.Compare(a.reading.InFlight, b.reading.InFlight); c != 0 {
			return c
		}
		if a.reading.Server == w.Home {
			return -1
		}
		if b.reading.Server == w.Home {
			return 1
		}
		return cmp.Compare(b.at, a.at)
	}
	best := 0
	for i := 1; i < len(s.pool); i++ {
		if order(&s.pool[i], &s.pool[best]) < 0 {
			best = i
		}
	}
	return best
}

// forget removes one answer: the oldest, or the worst (the most operations in flight if hot, else
// the highest latency).
func (s *prequal) forget() {
	at := 0
	if s.worst {
		limit := s.limit()
		for i := 1; i < len(s.pool); i++ {
			a, b := &s.pool[i].reading, &s.pool[at].reading
			if b.InFlight > limit || a.InFlight > limit {
				if a.InFlight > b.InFlight {
					at = i
				}
			} else if a.Latency > b.Latency {
				at = i
			}
		}
	}
	s.worst = !s.worst
	s.pool = slices.Delete(s.pool, at, at+1)
}

const (
	levelsKept = 64 // distinct numbers of operations in flight
	latestKept = 8  // latencies kept for each number
)

// latencies holds the latest latencies at each number of operations in flight, for Prequal.
type latencies struct {
	latest [levelsKept][latestKept]time.Duration
	count  [levelsKept]uint32
}

func (l *latencies) add(inFlight int, took time.Duration) {
	level := min(max(inFlight, 0), levelsKept-1)
	l.latest[level][l.count[level]%latestKept] = took
	l.count[level]++
}

// expect returns the median of the latest latencies at the given number of operations in flight, or
// at the nearest number with latencies. It returns 0 if there are none.
func (l *latencies) expect(inFlight int) time.Duration {
	level := min(max(inFlight, 0), levelsKept-1)
	for apart := range levelsKept {
		for _, near := range [2]int{level - apart, level + apart} {
			if near < 0 || near >= levelsKept || l.count[near] == 0 {
				continue
			}
			some := l.latest[near]
			kept := some[:min(l.count[near], latestKept)]
			slices.Sort(kept)
			return kept[len(kept)/2]
		}
	}
	return 0
}
