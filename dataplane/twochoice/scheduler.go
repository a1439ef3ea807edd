package twochoice

import "time"

// Write is a write that is to be placed.
type Write struct {
	Home  Server // where its object is at home
	Bytes int64  // its length
}

// Probe asks a server for its load.
type Probe struct {
	Server Server
	// Write is the index of the write that it is for; -1 when it is for all of them (III.B).
	Write int32
	// Bytes is the length of the write (the mean length when it is for all): len_io of section III.C.
	Bytes int64
}

// Ticket names what a server preassigned for a probe; 0 is nothing.
type Ticket uint64

// Reading is what a server answers to a probe.
type Reading struct {
	Server Server
	// Answered is false when no answer came: the server is down, or too late.
	Answered bool
	// InFlight is how many operations it has in flight.
	InFlight int32
	// Load is what schedulers compare: bytes (or operations) in flight, and what is expected.
	Load float64
	// Latency is what a write is expected to take there (Prequal); 0 when that is not known.
	Latency time.Duration
	// Ticket names what was preassigned.
	Ticket Ticket
}

// Placement is where a write goes.
type Placement struct {
	Server Server
	// Probe is the index of the probe whose ticket goes with the write, -1 when there is none. A
	// probe that no placement names was not chosen: its server is to be told (Detector.Settle).
	Probe int32
}

// Stats counts what a scheduler did.
type Stats struct {
	Writes          uint64
	Bytes           uint64
	Redirected      uint64 // placed elsewhere than at home
	RedirectedBytes uint64
	Small           uint64 // below the least size: not probed for, at home
	Blind           uint64 // without any reading, though the scheduler goes by readings
	Probes          uint64
	Unanswered      uint64 // probes
}

// Share is the share of writes that were redirected, 0 when there were no writes.
func (s Stats) Share() float64 {
	if s.Writes == 0 {
		return 0
	}
	return float64(s.Redirected) / float64(s.Writes)
}

// Add adds what another scheduler did.
func (s *Stats) Add(o Stats) {
	s.Writes += o.Writes
	s.Bytes += o.Bytes
	s.Redirected += o.Redirected
	s.RedirectedBytes += o.RedirectedBytes
	s.Small += o.Small
	s.Blind += o.Blind
	s.Probes += o.Probes
	s.Unanswered += o.Unanswered
}

// Scheduler places the writes of one client node: all writes that are pending there at one time
// together. Between Probes and Place it keeps nothing of them, so that any number of groups may be
// on their way. Slices that are passed in are not kept; `into` is appended to and returned.
type Scheduler interface {
	// Probes are the servers to ask for these writes: none when the scheduler does not ask. A write
	// whose home the cluster does not have is an *UnknownServerError.
	Probes(now time.Duration, writes []Write, into []Probe) ([]Probe, error)
	// Waits says whether Place needs the answers. When not, it is called at once with nil readings,
	// and the answers go to Heard when they come.
	Waits() bool
	// Place decides for each of the writes. readings[i] answers probes[i]; readings may be nil.
	// cached are loads of further servers that servers passed on with their answers.
	Place(now time.Duration, writes []Write, probes []Probe, readings, cached []Reading,
		into []Placement) ([]Placement, error)
	// Heard takes answers in that nobody waits for.
	Heard(now time.Duration, readings []Reading)
	// Stats are the counts so far.
	Stats() Stats
}

// New returns a scheduler. Parameters are checked; servers may be shared with other schedulers, as
// may random; queues is what the oracle is told, nil for all others.
func New(p Parameters, servers *Servers, random Random, queues *Queues) (Scheduler, error) {
	p, err := p.checked()
	if err != nil {
		return nil, err
	}
	if servers.Len() == 0 {
		return nil, &ParameterError{"the number of OSDs", "0", "1 and more"}
	}
	base := base{p: p, servers: servers, random: random}
	switch p.Scheduler {
	case Fixed:
		return &fixed{base}, nil
	case Uniform:
		return &uniform{base}, nil
	case TwoChoice, Preassign:
		return &twoChoice{base}, nil
	case Collaborative, Both:
		return &collaborative{base: base}, nil
	case Prequal:
		return &prequal{base: base}, nil
	}
	if queues == nil {
		return nil, &ParameterError{"the oracle's queues", "nothing", "the true queues of all OSDs"}
	}
	return &oracle{base, queues}, nil
}

// base is what all schedulers have.
type base struct {
	p       Parameters
	servers *Servers
	random  Random
	stats   Stats
}

func (b *base) Stats() Stats                   { return b.stats }
func (b *base) Heard(time.Duration, []Reading) {}
func (b *base) Waits() bool                    { return true }
func (b *base) small(w *Write) bool            { return w.Bytes < b.p.MinWrite }

// checkHomes answers for writes whose homes the cluster does not have.
func (b *base) checkHomes(writes []Write) error {
	for i := range writes {
		if err := b.servers.Check(writes[i].Home); err != nil {
			return err
		}
	}
	return nil
}

// count books a placement.
func (b *base) count(w *Write, server Server) {
	b.stats.Writes++
	b.stats.Bytes += uint64(w.Bytes)
	if server != w.Home {
		b.stats.Redirected++
		b.stats.RedirectedBytes += uint64(w.Bytes)
	}
}

// unanswered books probes that were not answered.
func (b *base) unanswered(probes []Probe, readings []Reading) {
	for i := range probes {
		if i >= len(readings) || !readings[i].Answered {
			b.stats.Unanswered++
		}
	}
}
