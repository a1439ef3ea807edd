package twochoice

import (
	"math"
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

// Queues holds the true queue lengths of servers, for the oracle. The simulation adds other load
// and subtracts completed work; the oracle adds the writes it places. Finding the shortest queue
// takes O(1), a change O(log n).
type Queues struct {
	servers []Server
	place   []int32   // by server: its leaf, or unknown
	leaves  int       // a power of two
	least   []int32   // tournament tree: the winning leaf below each node; node 1 is the root
	length  []float64 // by leaf; infinite for no server
}

// NewQueues returns empty queues of servers.
func NewQueues(servers *Servers) *Queues {
	q := &Queues{servers: servers.All(), leaves: 1}
	for q.leaves < len(q.servers) {
		q.leaves *= 2
	}
	q.length = make([]float64, q.leaves)
	q.least = make([]int32, 2*q.leaves)
	for i := range q.leaves {
		q.least[q.leaves+i] = int32(i)
		if i >= len(q.servers) {
			q.length[i] = math.Inf(1)
			continue
		}
		for int(q.servers[i]) >= len(q.place) {
			q.place = append(q.place, unknown)
		}
		q.place[q.servers[i]] = int32(i)
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

// leaf returns the leaf of a server's queue, or -1 if there is none.
func (q *Queues) leaf(server Server) int {
	if server < 0 || int(server) >= len(q.place) {
		return -1
	}
	return int(max(q.place[server], -1))
}

// Set sets a queue's length; math.Inf(1) makes the oracle avoid the server (if it is down).
func (q *Queues) Set(server Server, length float64) {
	leaf := q.leaf(server)
	if leaf < 0 {
		return
	}
	q.length[leaf] = length
	for node := (q.leaves + leaf) / 2; node >= 1; node /= 2 {
		q.play(node)
	}
}

// Add lengthens a queue, or shortens it by a negative number.
func (q *Queues) Add(server Server, by float64) { q.Set(server, q.Length(server)+by) }

// Length returns a queue's length; infinite for an unknown server.
func (q *Queues) Length(server Server) float64 {
	leaf := q.leaf(server)
	if leaf < 0 {
		return math.Inf(1)
	}
	return q.length[leaf]
}

// Shortest returns the server with the shortest queue, the first of several, or NoServer if all
// lengths are infinite.
func (q *Queues) Shortest() Server {
	leaf := q.least[1]
	if math.IsInf(q.length[leaf], 1) {
		return NoServer
	}
	return q.servers[leaf]
}
