package twochoice

import (
	"cmp"
	"slices"
	"time"
)

// collaborative probes for all pending writes together: 2k servers for k writes. The k least loaded
// servers take one write each (section III.B, figure 5). Servers with cached loads in the answers
// are candidates too: the freshest load of a server counts. A chosen server that is a write's home
// keeps that write.
type collaborative struct {
	base
	marks   marks
	ranked  []ranked
	places  []int32 // by server: 1 + its index in ranked; -1: not a candidate; 0: unknown
	pending []int32 // writes not placed yet
}

// ranked is a candidate.
type ranked struct {
	load   float64
	age    time.Duration
	server Server
	probe  int32 // -1: a cached load
	taken  bool
}

func (s *collaborative) Probes(writes []Write, into []Probe) []Probe {
	wanted, total := 0, int64(0)
	for i := range writes {
		if w := &writes[i]; !s.small(w) {
			wanted += 2
			total += w.Bytes
		}
	}
	if wanted == 0 {
		return into
	}
	mean := total / int64(wanted/2)
	begin := len(into)
	add := func(server Server) {
		s.marks.set(server)
		into = append(into, Probe{server, -1, mean})
	}
	if s.p.Choices == HomeRandom {
		for i := range writes {
			if w := &writes[i]; !s.small(w) && !s.marks.has(w.Home) {
				add(w.Home)
			}
		}
	}
	if wanted = min(wanted, int(s.servers)); 2*wanted > int(s.servers) {
		into = s.drawMany(wanted-(len(into)-begin), mean, into)
	}
	for len(into)-begin < wanted {
		if server := s.servers.draw(s.random); !s.marks.has(server) {
			add(server)
		}
	}
	for _, probe := range into[begin:] {
		s.marks.clear(probe.Server)
	}
	s.stats.Probes += uint64(len(into) - begin)
	return into
}

// drawMany draws n servers that are not marked, when n is most of them. It scans all servers,
// because drawing until a server is unmarked would be slow. It shuffles the result: the first of
// equal loads wins, and nodes must not agree on it.
func (s *collaborative) drawMany(n int, mean int64, into []Probe) []Probe {
	begin := len(into)
	seen := 0
	for server := range Server(s.servers) {
		if s.marks.has(server) {
			continue
		}
		seen++
		if len(into)-begin < n {
			into = append(into, Probe{server, -1, mean})
		} else if at := below(s.random, seen); at < n {
			into[begin+at].Server = server
		}
	}
	for i := len(into) - 1; i >= begin; i-- {
		k := begin + below(s.random, i-begin+1)
		into[i], into[k] = into[k], into[i]
		s.marks.set(into[i].Server)
	}
	return into
}

func (s *collaborative) Place(_ time.Duration, writes []Write, probes []Probe,
	readings, cached []Reading, into []Placement) []Placement {
	s.unanswered(probes, readings)
	s.rank(probes, readings, cached)
	begin := len(into)
	s.pending = s.pending[:0]
	for i := range writes {
		into = append(into, Placement{NoServer, -1})
		if w := &writes[i]; !s.small(w) && len(s.ranked) > 0 {
			s.pending = append(s.pending, int32(i))
		}
	}
	out := into[begin:]
	// With fewer candidates than writes, the candidates take several turns.
	for len(s.pending) > 0 {
		s.turn(s.ranked[:min(len(s.pending), len(s.ranked))], writes, out)
	}
	for i, o := range out {
		if o.Server == NoServer {
			out[i] = s.home(&writes[i])
		} else {
			s.place(&writes[i], o.Server, o.Probe)
		}
	}
	return into
}

// rank collects the candidates, least loaded first. At equal loads the earlier probe comes first.
func (s *collaborative) rank(probes []Probe, readings, cached []Reading) {
	s.ranked = s.ranked[:0]
	if s.places == nil {
		s.places = make([]int32, s.servers)
	}
	for i := range probes {
		// A server's own answer is better than another server's cached load of it.
		s.places[probes[i].Server] = -1
		if i < len(readings) && readings[i].Answered {
			s.ranked = append(s.ranked, ranked{readings[i].Load, 0, probes[i].Server, int32(i), false})
		}
	}
	for i := range cached {
		c := &cached[i]
		if !c.Answered {
			continue
		}
		switch at := s.places[c.Server]; {
		case at == 0:
			s.ranked = append(s.ranked, ranked{c.Load, c.Age, c.Server, -1, false})
			s.places[c.Server] = int32(len(s.ranked))
		case at > 0 && c.Age < s.ranked[at-1].age:
			s.ranked[at-1].load, s.ranked[at-1].age = c.Load, c.Age
		}
	}
	for i := range probes {
		s.places[probes[i].Server] = 0
	}
	for i := range s.ranked {
		s.places[s.ranked[i].server] = 0
	}
	slices.SortStableFunc(s.ranked, func(a, b ranked) int { return cmp.Compare(a.load, b.load) })
}

// turn gives one pending write to each chosen server: first the writes at home there, then the
// remaining writes in order.
func (s *collaborative) turn(chosen []ranked, writes []Write, out []Placement) {
	for i := range chosen {
		chosen[i].taken = false
	}
	give := func(c *ranked, write int32) {
		c.taken = true
		out[write] = Placement{c.server, c.probe}
		c.probe = -1 // a ticket is for one write
	}
	left := s.pending[:0]
	for _, write := range s.pending {
		at := slices.IndexFunc(chosen, func(c ranked) bool {
			return !c.taken && c.server == writes[write].Home
		})
		if at < 0 {
			left = append(left, write)
			continue
		}
		give(&chosen[at], write)
	}
	next := 0
	for i := range chosen {
		if !chosen[i].taken && next < len(left) {
			give(&chosen[i], left[next])
			next++
		}
	}
	s.pending = append(s.pending[:0], left[next:]...)
}

// marks is a set of servers that is cheap to clear.
type marks struct{ words []uint64 }

func (m *marks) has(s Server) bool {
	at := int(s) / 64
	return at < len(m.words) && m.words[at]>>(uint(s)%64)&1 == 1
}

func (m *marks) set(s Server) {
	for int(s)/64 >= len(m.words) {
		m.words = append(m.words, 0)
	}
	m.words[int(s)/64] |= 1 << (uint(s) % 64)
}

func (m *marks) clear(s Server) {
	if at := int(s) / 64; at < len(m.words) {
		m.words[at] &^= 1 << (uint(s) % 64)
	}
}
