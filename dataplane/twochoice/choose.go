package twochoice

import "time"

// fixed leaves every write at home: a file system's own placement.
type fixed struct{ base }

func (s *fixed) Waits() bool { return false }

func (s *fixed) Probes(_ time.Duration, writes []Write, into []Probe) ([]Probe, error) {
	return into, s.checkHomes(writes)
}

func (s *fixed) Place(_ time.Duration, writes []Write, _ []Probe, _, _ []Reading,
	into []Placement) ([]Placement, error) {
	if err := s.checkHomes(writes); err != nil {
		return into, err
	}
	for i := range writes {
		into = s.home(&writes[i], into)
	}
	return into, nil
}

// uniform places every write on a random server.
type uniform struct{ base }

func (s *uniform) Waits() bool { return false }

func (s *uniform) Probes(_ time.Duration, writes []Write, into []Probe) ([]Probe, error) {
	return into, s.checkHomes(writes)
}

func (s *uniform) Place(_ time.Duration, writes []Write, _ []Probe, _, _ []Reading,
	into []Placement) ([]Placement, error) {
	if err := s.checkHomes(writes); err != nil {
		return into, err
	}
	for i := range writes {
		w := &writes[i]
		server := NoServer
		if !s.small(w) {
			server = s.servers.Draw(s.random)
		}
		if server == NoServer {
			into = s.home(w, into)
			continue
		}
		into = s.placed(w, server, -1, into)
	}
	return into, nil
}

// twoChoice probes two servers for each write and takes the less loaded one (III). At equal loads
// the write goes to the first candidate: its home, if the home is a candidate.
type twoChoice struct{ base }

func (s *twoChoice) Probes(_ time.Duration, writes []Write, into []Probe) ([]Probe, error) {
	if err := s.checkHomes(writes); err != nil {
		return into, err
	}
	for i := range writes {
		w := &writes[i]
		if s.small(w) {
			continue
		}
		first := s.first(w)
		if first == NoServer {
			continue
		}
		into = append(into, Probe{first, int32(i), w.Bytes})
		s.stats.Probes++
		if second := s.servers.DrawOther(s.random, first); second != NoServer {
			into = append(into, Probe{second, int32(i), w.Bytes})
			s.stats.Probes++
		}
	}
	return into, nil
}

func (s *twoChoice) Place(_ time.Duration, writes []Write, probes []Probe, readings, _ []Reading,
	into []Placement) ([]Placement, error) {
	if err := s.checkHomes(writes); err != nil {
		return into, err
	}
	s.unanswered(probes, readings)
	at := 0
	for i := range writes {
		best := -1
		for ; at < len(probes) && probes[at].Write == int32(i); at++ {
			if at < len(readings) && readings[at].Answered &&
				(best < 0 || readings[at].Load < readings[best].Load) {
				best = at
			}
		}
		if best < 0 {
			into = s.blind(&writes[i], into)
			continue
		}
		into = s.placed(&writes[i], probes[best].Server, int32(best), into)
	}
	return into, nil
}

// oracle joins the shortest queue. It knows all true queue lengths without probes or delay, and
// adds each write to its queue at once. At equal lengths a write stays at home.
type oracle struct {
	base
	queues *Queues
}

func (s *oracle) Waits() bool { return false }

func (s *oracle) Probes(_ time.Duration, writes []Write, into []Probe) ([]Probe, error) {
	return into, s.checkHomes(writes)
}

func (s *oracle) Place(_ time.Duration, writes []Write, _ []Probe, _, _ []Reading,
	into []Placement) ([]Placement, error) {
	if err := s.checkHomes(writes); err != nil {
		return into, err
	}
	for i := range writes {
		w := &writes[i]
		server := w.Home
		if shortest := s.queues.Shortest(); !s.small(w) && s.servers.Known(shortest) &&
			(!s.servers.Up(w.Home) || s.queues.Length(shortest) < s.queues.Length(w.Home)) {
			server = shortest
		}
		s.queues.Add(server, float64(w.Bytes))
		into = s.placed(w, server, -1, into)
	}
	return into, nil
}

// first returns the first candidate of a write: its home, or a random server.
func (b *base) first(w *Write) Server {
	if b.p.Choices == HomeRandom && b.servers.Up(w.Home) {
		return w.Home
	}
	return b.servers.Draw(b.random)
}

// placed counts a write and appends its placement.
func (b *base) placed(w *Write, server Server, probe int32, into []Placement) []Placement {
	b.count(w, server)
	return append(into, Placement{server, probe})
}

// home leaves a write at home, without a probe.
func (b *base) home(w *Write, into []Placement) []Placement {
	if b.small(w) {
		b.stats.Small++
	}
	return b.placed(w, w.Home, -1, into)
}

// blind leaves a write at home because no probe was answered, or because the write is small.
func (b *base) blind(w *Write, into []Placement) []Placement {
	b.without(w)
	return b.placed(w, w.Home, -1, into)
}

// without counts a write that is placed without an answer.
func (b *base) without(w *Write) {
	if b.small(w) {
		b.stats.Small++
	} else {
		b.stats.Blind++
	}
}
