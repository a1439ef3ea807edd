package twochoice

import (
	"errors"
	"math"
	"slices"
	"time"
)

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
	// Age is the time since the server's answer.
	Age time.Duration
	// Ticket identifies the preassignment.
	Ticket Ticket
}

// Placement is the destination of a write.
type Placement struct {
	Server Server
	// Probe is the index of the probe for the write's ticket, or -1 if there is none.
	Probe int32
}

// Decision informs a server about a placement (section III.C).
type Decision struct {
	Server Server
	// Ticket identifies the preassignment; 0 if the write was placed without a probe.
	Ticket Ticket
	// Write is the index of the write that the server gets, -1 if it was not chosen.
	Write int32
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
// slices that are passed in; `into` is appended to and returned. Homes are servers of the cluster.
type Scheduler interface {
	// Probes returns the servers to probe for these writes, none if the scheduler does not probe.
	Probes(writes []Write, into []Probe) []Probe
	// Place decides for each write. readings[i] answers probes[i]; readings may be nil. cached
	// holds loads of further servers that servers added to their answers.
	Place(now time.Duration, writes []Write, probes []Probe, readings, cached []Reading,
		into []Placement) []Placement
	// Decide returns the decisions after a Place, one for each probe and one for each write that was
	// placed without a probe, and the loads that go to the same servers (section III.B): the loads of
	// all probed servers, with the writes just placed. It returns nothing if servers neither preassign
	// nor share. A write on NoServer was given up. `into` and `loads` are overwritten.
	Decide(writes []Write, probes []Probe, readings []Reading, placed []Placement, into []Decision,
		loads []Reading) ([]Decision, []Reading)
	// Stats returns the counts so far.
	Stats() Stats
}

// New returns a scheduler for parameters that the caller has validated, once for all nodes of a
// simulation. Schedulers may share random. queues is for the oracle, nil for all other policies.
func New(p Parameters, servers Servers, random Random, queues *Queues) (Scheduler, error) {
	if servers < 1 {
		return nil, errors.New("a scheduler needs at least one server")
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
		return nil, errors.New("the oracle needs the true queues of all servers")
	}
	return &oracle{base, queues}, nil
}

// base is the common part of all schedulers.
type base struct {
	p       Parameters
	servers Servers
	random  Random
	stats   Stats
}

// Probes returns no servers: the scheduler does not probe.
func (b *base) Probes(_ []Write, into []Probe) []Probe { return into }

func (b *base) Stats() Stats        { return b.stats }
func (b *base) small(w *Write) bool { return w.Bytes < b.p.MinWrite }

// first returns the first candidate of a write: its home, or a random server.
func (b *base) first(w *Write) Server {
	if b.p.Choices == HomeRandom {
		return w.Home
	}
	return b.servers.draw(b.random)
}

// place counts a write and returns its placement.
func (b *base) place(w *Write, server Server, probe int32) Placement {
	b.stats.Writes++
	b.stats.Bytes += uint64(w.Bytes)
	if server != w.Home {
		b.stats.Redirected++
		b.stats.RedirectedBytes += uint64(w.Bytes)
	}
	return Placement{server, probe}
}

// home leaves a write at home, because it is small or no probe was answered.
func (b *base) home(w *Write) Placement {
	if b.small(w) {
		b.stats.Small++
	} else {
		b.stats.Blind++
	}
	return b.place(w, w.Home, -1)
}

// Decide implements Scheduler.
func (b *base) Decide(writes []Write, probes []Probe, readings []Reading, placed []Placement, into []Decision,
	loads []Reading) ([]Decision, []Reading) {
	into, loads = into[:0], loads[:0]
	shares := b.p.Scheduler.Shares()
	if !shares && !b.p.Scheduler.Preassigns() {
		return into, loads
	}
	for i := range readings {
		into = append(into, Decision{probes[i].Server, readings[i].Ticket, -1})
	}
	if shares {
		loads = append(loads, readings...)
	}
	for i, one := range placed {
		w, at := &writes[i], int(one.Probe)
		switch {
		case one.Server == NoServer || b.small(w):
			continue
		case at >= 0:
			into[at].Write = int32(i)
		default:
			into = append(into, Decision{one.Server, 0, int32(i)})
			at = slices.IndexFunc(loads, func(r Reading) bool { return r.Server == one.Server })
		}
		if shares && at >= 0 {
			loads[at].Load += b.p.Metric.of(w.Bytes)
			loads[at].InFlight++
		}
	}
	return into, loads
}

// of returns the load of a write of this many bytes.
func (m Metric) of(bytes int64) float64 {
	if m == Operations {
		return 1
	}
	return float64(bytes)
}

// unanswered counts probes without an answer.
func (b *base) unanswered(probes []Probe, readings []Reading) {
	for i := range probes {
		if i >= len(readings) || !readings[i].Answered {
			b.stats.Unanswered++
		}
	}
}

// fixed leaves every write at home: a file system's own placement.
type fixed struct{ base }

func (s *fixed) Place(_ time.Duration, writes []Write, _ []Probe, _, _ []Reading, into []Placement) []Placement {
	for i := range writes {
		if s.small(&writes[i]) {
			s.stats.Small++
		}
		into = append(into, s.place(&writes[i], writes[i].Home, -1))
	}
	return into
}

// uniform places every write on a random server.
type uniform struct{ base }

func (s *uniform) Place(_ time.Duration, writes []Write, _ []Probe, _, _ []Reading, into []Placement) []Placement {
	for i := range writes {
		if w := &writes[i]; s.small(w) {
			into = append(into, s.home(w))
		} else {
			into = append(into, s.place(w, s.servers.draw(s.random), -1))
		}
	}
	return into
}

// twoChoice probes two servers for each write and takes the less loaded one (III). At equal loads
// the write goes to the first candidate: its home, if the home is a candidate.
type twoChoice struct{ base }

func (s *twoChoice) Probes(writes []Write, into []Probe) []Probe {
	for i := range writes {
		w := &writes[i]
		if s.small(w) {
			continue
		}
		first := s.first(w)
		into = append(into, Probe{first, int32(i), w.Bytes})
		s.stats.Probes++
		if second := s.servers.drawOther(s.random, first); second != NoServer {
			into = append(into, Probe{second, int32(i), w.Bytes})
			s.stats.Probes++
		}
	}
	return into
}

func (s *twoChoice) Place(_ time.Duration, writes []Write, probes []Probe, readings, _ []Reading,
	into []Placement) []Placement {
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
			into = append(into, s.home(&writes[i]))
		} else {
			into = append(into, s.place(&writes[i], probes[best].Server, int32(best)))
		}
	}
	return into
}

// oracle joins the shortest queue. It knows all true queue lengths without probes or delay, and
// adds each write to its queue at once. At equal lengths a write stays at home.
type oracle struct {
	base
	queues *Queues
}

func (s *oracle) Place(_ time.Duration, writes []Write, _ []Probe, _, _ []Reading, into []Placement) []Placement {
	for i := range writes {
		w := &writes[i]
		server := w.Home
		if shortest := s.queues.shortest(); !s.small(w) && s.queues.length[shortest] < s.queues.length[w.Home] {
			server = shortest
		}
		s.queues.Add(server, float64(w.Bytes))
		into = append(into, s.place(w, server, -1))
	}
	return into
}

// Queues holds the true queue lengths of servers, for the oracle. The simulation adds other load
// and subtracts completed work; the oracle adds the writes it places. Finding the shortest queue
// takes O(1), a change O(log n).
type Queues struct {
	leaves int       // a power of two
	least  []Server  // tournament tree: the winner below each node; node 1 is the root
	length []float64 // infinite for leaves without a server
}

// NewQueues returns empty queues of servers.
func NewQueues(servers Servers) *Queues {
	q := &Queues{leaves: 1}
	for q.leaves < int(servers) {
		q.leaves *= 2
	}
	q.length = make([]float64, q.leaves)
	q.least = make([]Server, 2*q.leaves)
	for i := range q.leaves {
		q.least[q.leaves+i] = Server(i)
		if i >= int(servers) {
			q.length[i] = math.Inf(1)
		}
	}
	for node := q.leaves - 1; node >= 1; node-- {
		q.play(node)
	}
	return q
}

func (q *Queues) play(node int) {
	left, right := q.least[2*node], q.least[2*node+1]
	if q.length[right] < q.length[left] {
		left = right
	}
	q.least[node] = left
}

// shortest returns the server with the shortest queue, the first of several.
func (q *Queues) shortest() Server { return q.least[1] }

// Set sets a queue's length.
func (q *Queues) Set(server Server, length float64) {
	q.length[server] = length
	for node := (q.leaves + int(server)) / 2; node >= 1; node /= 2 {
		q.play(node)
	}
}

// Add lengthens a queue, or shortens it by a negative number.
func (q *Queues) Add(server Server, by float64) { q.Set(server, q.length[server]+by) }

// Length returns a queue's length.
func (q *Queues) Length(server Server) float64 { return q.length[server] }
