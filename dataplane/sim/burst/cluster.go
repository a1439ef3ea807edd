package burst

import (
	"math"
	"time"

	"hotbed/dataplane/sim"
	"hotbed/dataplane/twochoice"
)

// server is an object server: one first-come-first-served queue with equal service times. A busy
// server's writes end one service time apart, the last at `free`. So `free` alone gives the number
// of writes at any time, and their ends need no events.
type server struct {
	free      time.Duration // time when it becomes idle
	told      int64         // writes in flight in its detector
	given     int64         // writes of the burst
	load      int64         // writes held at the start of the burst
	straggler bool
	serving   bool      // an event waits for its next write's end (for the oracle)
	arrivals  []arrival // of the writes in its detector; for latencies (Prequal)
}

// arrival is the arrival time of a write and the number of writes before it.
type arrival struct {
	at      time.Duration
	besides int32
	burst   bool // else it was there at the start of the burst, for an unknown time
}

// held returns the number of unfinished writes at time now; a write that ends now is finished.
func (s *server) held(now, service time.Duration) int64 {
	if s.free <= now {
		return 0
	}
	return int64((s.free - now + service - 1) / service)
}

// detector returns a server's detector, updated to now.
func (m *model) detector(i twochoice.Server, now time.Duration) *twochoice.Detector {
	s, d := &m.servers[i], m.detectors[i]
	held := s.held(now, m.service)
	done := s.told - held
	if done == 0 {
		return d
	}
	s.told = held
	if !m.latencies {
		d.Add(-done, -done*WriteBytes)
		return d
	}
	for j, a := range s.arrivals[:done] {
		took := time.Duration(0)
		end := s.free - time.Duration(held+done-int64(j)-1)*m.service
		if a.burst {
			took = end - a.at
		}
		d.End(end, WriteBytes, took, a.besides)
	}
	s.arrivals = append(s.arrivals[:0], s.arrivals[done:]...)
	return d
}

// come adds a write of the burst to a server's queue and returns its end.
func (m *model) come(i twochoice.Server, now time.Duration, ticket twochoice.Ticket) time.Duration {
	d, s := m.detector(i, now), &m.servers[i]
	d.Begin(now, ticket, WriteBytes)
	if m.latencies {
		s.arrivals = append(s.arrivals, arrival{now, int32(s.told), true})
	}
	if m.queues != nil && !s.serving {
		s.serving = true
		m.k.Post(now+m.service, m, served<<32|uint64(i))
	}
	s.told++
	s.given++
	s.free = max(s.free, now) + m.service
	return s.free
}

// load sets every server's initial load for a burst that begins at time now. The stream makes it
// equal for all schedulers.
func (m *model) load(now time.Duration, draws *sim.Stream) {
	for i := range m.order {
		m.order[i] = int32(i)
	}
	for i := range m.p.stragglers() {
		j := i + int(draws.IntN(int64(len(m.order)-i)))
		m.order[i], m.order[j] = m.order[j], m.order[i]
	}
	for i := range m.servers {
		m.servers[i].straggler = false
	}
	for _, i := range m.order[:m.p.stragglers()] {
		m.servers[i].straggler = true
	}
	for i := range m.servers {
		d, s := m.detector(twochoice.Server(i), now), &m.servers[i]
		load := max(0, m.p.LoadMean+float64(m.p.LoadSD*draws.Normal()))
		if s.straggler {
			load *= m.p.StragglerFactor
		}
		s.load, s.given = int64(math.Round(load)), 0
		s.told, s.free = s.load, now+time.Duration(s.load)*m.service
		d.Add(s.load, s.load*WriteBytes)
		if m.latencies {
			s.arrivals = s.arrivals[:0]
			for range s.load {
				s.arrivals = append(s.arrivals, arrival{at: now})
			}
		}
		if m.queues != nil {
			m.queues.Set(twochoice.Server(i), float64(s.load*WriteBytes))
			if s.serving = s.load > 0; s.serving {
				m.k.Post(now+m.service, m, served<<32|uint64(i))
			}
		}
	}
}

// best returns the earliest end of the last of these writes, if all were present at the start of
// the burst and placed optimally: a bound for every scheduler.
func (m *model) best(writes int) time.Duration {
	low, high := int64(0), int64(writes)
	for i := range m.servers {
		high = max(high, m.servers[i].load+int64(writes))
	}
	for low < high { // find the lowest level at which the queues hold all writes
		level := (low + high) / 2
		room := int64(0)
		for i := range m.servers {
			room += max(0, level-m.servers[i].load)
		}
		if room >= int64(writes) {
			high = level
		} else {
			low = level + 1
		}
	}
	return time.Duration(low) * m.service
}
