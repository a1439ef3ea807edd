package twochoice

import "time"

// Write is a write to place.
type Write struct {
	Home  Server // home server of the object
	Bytes int64  // length
}

// Probe asks a server for its load.
type Probe struct {
	Server Server
	// Write is the index of the probed write; -1 if the probe is for all writes (III.B).
	Write int32
	// Bytes is the write's length (the mean length if for all writes): len_io of section III.C.
	Bytes int64
}

// Ticket identifies a server's preassignment for a probe; 0 is none.
type Ticket uint64

// Reading is a server's answer to a probe.
type Reading struct {
	Server Server
	// Answered is false if the server is down or its answer too late.
	Answered bool
	// InFlight is the number of operations in flight.
	InFlight int32
	// Load is the compared value: bytes (or operations) in flight plus expected load.
	Load float64
	// Latency is the expected latency of a write (Prequal); 0 if unknown.
	Latency time.Duration
	// Ticket identifies the preassignment.
	Ticket Ticket
}

// Placement is the destination of a write.
type Placement struct {
	Server Server
	// Probe is the index of the probe for the write's ticket, or -1 if there is none. A probe in no
	// placement was not chosen; its server must be informed (Detector.Settle).
	Probe int32
}

// Stats counts what a scheduler did.
type Stats struct {
	Writes          uint64
	Bytes           uint64
	Redirected      uint64 // placed on a server other than home
	RedirectedBytes uint64
	Small           uint64 // below the minimum size: no probe, at home
	Blind           uint64 // placed without a reading although the scheduler needs readings
	Probes          uint64
	Unanswered      uint64 // probes
}

// Share returns the share of writes that were redirected, 0 if there were no writes.
func (s Stats) Share() float64 {
	if s.Writes == 0 {
		return 0
	}
	return float64(s.Redirected) / float64(s.Writes)
}

// Add adds the counts of another scheduler.
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

// Scheduler places all writes that are pending on one client node at one time. It keeps no state of
// a group between Probes and Place, so any number of groups may be in progress. It does not keep
// slices that are passed in; `into` is appended to and returned.
type Scheduler interface {
	// Probes returns the servers to probe for these writes, none if the scheduler does not probe. A
	// write with a home outside the cluster is an *UnknownServerError.
	Probes(now time.Duration, writes []Write, into []Probe) ([]Probe, error)
	// Waits reports whether Place needs the answers. If not, the caller calls Place at once with
	// nil readings, and passes later answers to Heard.
	Waits() bool
	// Place decides for each write. readings[i] answers probes[i]; readings may be nil. cached
	// holds loads of further servers that servers added to their answers.
	Place(now time.Duration, writes []Write, probes []Probe, readings, cached []Reading,
		into []Placement) ([]Placement, error)
	// Heard takes answers that no Place call waited for.
	Heard(now time.Duration, readings []Reading)
	// Stats returns the counts so far.
	Stats() Stats
}

// New returns a scheduler after checking its parameters. Schedulers may share servers and random.
// queues is for the oracle, nil for all other policies.
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

// base is the common part of all schedulers.
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

// checkHomes returns an error if the cluster lacks a write's home.
func (b *base) checkHomes(writes []Write) error {
	for i := range writes {
		if err := b.servers.Check(writes[i].Home); err != nil {
			return err
		}
	}
	return nil
}

// count records a placement in the statistics.
func (b *base) count(w *Write, server Server) {
	b.stats.Writes++
	b.stats.Bytes += uint64(w.Bytes)
	if server != w.Home {
		b.stats.Redirected++
		b.stats.RedirectedBytes += uint64(w.Bytes)
	}
}

// unanswered counts probes without an answer.
func (b *base) unanswered(probes []Probe, readings []Reading) {
	for i := range probes {
		if i >= len(readings) || !readings[i].Answered {
			b.stats.Unanswered++
		}
	}
}
