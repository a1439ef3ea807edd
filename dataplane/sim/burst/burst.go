// Package burst simulates bursts of writes on a cluster of object servers, as in section III of the
// two-choice paper (Dai, Chen, Kimpe and Ross, SC 2014), figures 3 and 4. Servers hold initial
// writes, stragglers many times more, and all processes write at once. Schedulers and load
// detectors are the real code of package twochoice; only the servers' queues, the network's round
// trip and the clock are modelled.
package burst

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"

	"hotbed/dataplane/internal/limits"
	"hotbed/dataplane/sim"
	"hotbed/dataplane/twochoice"
)

// WriteBytes is the length of a write, 1 MB.
const WriteBytes = 1_000_000

// gap is the computation time between two bursts.
const gap = 10 * time.Second

// Parameters configures a run. Times are in seconds.
type Parameters struct {
	Scheduler twochoice.Policy  `json:"scheduler"`
	Choices   twochoice.Choices `json:"choices"`
	Servers   int               `json:"servers" limits:"2 1e6"`
	Processes int               `json:"processes" limits:"1 1e7"`
	// PerNode is the number of processes per compute node, which has a scheduler and a link.
	PerNode int `json:"processes_per_node" limits:"1 65536"`
	// StragglerRatio of the servers have StragglerFactor times the load; others in each burst.
	StragglerRatio  float64 `json:"straggler_ratio" limits:"0 1"`
	StragglerFactor float64 `json:"straggler_factor" limits:"1 1000"`
	// LoadMean and LoadSD describe a server's writes at the start of a burst: normal, rounded to
	// whole writes.
	LoadMean float64 `json:"load_mean" limits:"0 1e6"`
	LoadSD   float64 `json:"load_sd" limits:"0 1e6"`
	Service  float64 `json:"service_s" limits:"1e-6 60"` // of one write at a server
	Trip     float64 `json:"round_trip_s" limits:"0 10"` // between a compute node and a server
	Link     float64 `json:"link_s" limits:"0 10"`       // of one write on a compute node's link
	Spread   float64 `json:"spread_s" limits:"0 60"`     // nodes begin at random times within it
	Cache    float64 `json:"cache_s" limits:"0 3600"`    // lifetime of loads of other servers (III.B)
	// Weight is the weight of P(load)'s prior, in decisions (III.C).
	Weight float64 `json:"prior_weight" limits:"0 1e9"`
	// LearnRounds is the number of uncounted bursts for learning; Rounds is that of counted bursts.
	LearnRounds int `json:"learn_rounds" limits:"0 1e4"`
	Rounds      int `json:"rounds" limits:"1 1e4"`
	// Forget discards all learning before each counted burst: a cold start.
	Forget bool `json:"forget"`
	// Redirects delays a redirected write until its home server has recorded it (V.A, step 4).
	Redirects bool   `json:"redirects"`
	Seed      uint64 `json:"seed"`
	// Trace outputs the loads and the probed servers of the first counted burst, for another
	// simulator.
	Trace bool `json:"trace,omitempty"`
}

// Defaults returns figure 3's parameters as far as the paper gives them: 1,000 servers, 10,000
// processes, 5 ms, stragglers with 5 times the load. Mean 10 and deviation 2 have figure 4's 60
// servers of load 7. 20 ms is the 50 MB/s between a compute node and a server of section VI.A; its
// nodes have 8 processes and 4 GB/s.
func Defaults() Parameters {
	return Parameters{
		Scheduler: twochoice.TwoChoice, Choices: twochoice.RandomRandom,
		Servers: 1000, Processes: 10_000, PerNode: 8, StragglerFactor: 5, LoadMean: 10, LoadSD: 2,
		Service: 0.02, Trip: 0.005, Link: 0.00025, Cache: 0.2, Weight: 1, Rounds: 1,
	}
}

// Read reads parameters in JSON; missing fields have defaults. Errors are one sentence.
func Read(in io.Reader) (Parameters, error) {
	p := Defaults()
	decoder := json.NewDecoder(in)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return p, fmt.Errorf("the request cannot be read: %w", err)
	}
	return p, p.Validate()
}

// Validate returns an error of one sentence for the first value outside its range.
func (p *Parameters) Validate() error {
	if err := limits.Check(*p); err != nil {
		return err
	}
	core := p.core()
	return core.Validate()
}

// core returns the parameters of the schedulers and the detectors.
func (p *Parameters) core() twochoice.Parameters {
	core := twochoice.Simulated(p.Scheduler)
	core.Choices = p.Choices
	core.CacheLifetime = twochoice.Span(sim.Seconds(p.Cache))
	core.Preassign.Unit = WriteBytes
	core.Preassign.Weight = p.Weight
	// A preassignment lasts until its write arrives, however slow its link.
	wait := sim.Seconds(p.Trip + float64(float64(p.PerNode)*p.Link))
	core.Preassign.Lifetime = twochoice.Span(max(time.Second, 2*wait))
	return core
}

// stragglers returns the number of stragglers.
func (p *Parameters) stragglers() int {
	return int(math.Round(p.StragglerRatio * float64(p.Servers)))
}

// nodes returns the number of compute nodes.
func (p *Parameters) nodes() int { return (p.Processes + p.PerNode - 1) / p.PerNode }

// model is a cluster, its writing nodes, and the clock. It handles all events; the upper half of an
// event's argument is its kind, the lower half a node, write or server.
type model struct {
	p    Parameters
	k    *sim.Kernel
	core twochoice.Parameters

	half, service, link time.Duration
	latencies           bool // servers know the durations of their writes

	servers   []server
	detectors []*twochoice.Detector
	cluster   twochoice.Servers
	queues    *twochoice.Queues // the oracle's
	order     []int32

	schedulers []twochoice.Scheduler // one for all nodes, or one per node if it has memory
	nodes      []node
	writes     []twochoice.Write
	targets    []twochoice.Server
	tickets    []twochoice.Ticket

	begun    time.Duration // start of the burst
	unprobed int           // nodes that have not probed yet
	round    Round
	last     time.Duration // the last acknowledgement
	total    time.Duration // sum of the processes' responses
}

// node is a compute node: a scheduler, a link, and its writes in progress.
type node struct {
	first, count int // of its writes
	begun, free  time.Duration
	probes       []twochoice.Probe
	readings     []twochoice.Reading
	cached       []twochoice.Reading
	placed       []twochoice.Placement
	decisions    []twochoice.Decision
	loads        []twochoice.Reading // that go with the decisions
}

// Kinds of events.
const (
	begins   uint64 = iota // a node begins to write
	probed                 // its probes arrive at the servers
	answered               // the answers arrive at the node, which decides
	informed               // the servers learn the decision
	came                   // a write's data arrives at its server
	served                 // a server has done a write (only for the oracle)
)

func newModel(p Parameters) (*model, error) {
	m := &model{
		p: p, k: sim.New(), core: p.core(),
		half: sim.Seconds(p.Trip / 2), service: sim.Seconds(p.Service), link: sim.Seconds(p.Link),
		latencies: p.Scheduler == twochoice.Prequal,
		servers:   make([]server, p.Servers), detectors: make([]*twochoice.Detector, p.Servers),
		order: make([]int32, p.Servers), nodes: make([]node, p.nodes()),
		cluster: twochoice.Servers(p.Servers), writes: make([]twochoice.Write, p.Processes),
		targets: make([]twochoice.Server, p.Processes), tickets: make([]twochoice.Ticket, p.Processes),
	}
	m.forget()
	if p.Scheduler == twochoice.Oracle {
		m.queues = twochoice.NewQueues(m.cluster)
	}
	count := 1
	if p.Scheduler == twochoice.Prequal {
		count = len(m.nodes)
	}
	choices := sim.NewStream(p.Seed, "choices")
	for range count {
		s, err := twochoice.New(m.core, m.cluster, choices, m.queues)
		if err != nil {
			return nil, err
		}
		m.schedulers = append(m.schedulers, s)
	}
	m.layOut()
	return m, nil
}

// layOut assigns processes to nodes, and allocates space for all probes at once.
func (m *model) layOut() {
	each := 2 // maximum probes of a write
	if m.latencies {
		each = m.core.Prequal.Probes
	}
	probes := make([]twochoice.Probe, each*m.p.Processes)
	readings := make([]twochoice.Reading, each*m.p.Processes)
	placed := make([]twochoice.Placement, m.p.Processes)
	for i := range m.nodes {
		first := i * m.p.PerNode
		count := min(m.p.PerNode, m.p.Processes-first)
		low, high := each*first, each*(first+count)
		m.nodes[i] = node{
			first: first, count: count,
			probes: probes[low:low:high], readings: readings[low:low:high],
			placed: placed[first : first : first+count],
		}
	}
}

// forget gives the servers detectors that have learned nothing.
func (m *model) forget() {
	for i := range m.detectors {
		m.detectors[i] = twochoice.NewDetector(m.core, twochoice.Server(i), 1)
		m.servers[i].reported, m.servers[i].arrivals = 0, nil
	}
}

func (m *model) scheduler(node int) twochoice.Scheduler {
	if len(m.schedulers) == 1 {
		return m.schedulers[0]
	}
	return m.schedulers[node]
}

// burst lets all processes write once. Loads and stragglers come from the stream, which no
// scheduler's choices change.
func (m *model) burst(draws sim.Stream) error {
	m.begun = max(m.k.Now(), m.last) + gap
	m.k.RunUntil(m.begun)
	m.load(m.begun, &draws)
	start := draws.Uint64()
	for i := range m.writes {
		m.writes[i] = twochoice.Write{Home: m.cluster.Stripe(start, uint64(i)), Bytes: WriteBytes}
	}
	m.round, m.last, m.total = Round{Stragglers: m.p.stragglers()}, 0, 0
	m.unprobed = len(m.nodes)
	for i := range m.nodes {
		n := &m.nodes[i]
		n.begun = m.begun
		if m.p.Spread > 0 {
			n.begun += sim.Seconds(draws.Uniform() * m.p.Spread)
		}
		n.free = n.begun
		m.k.Post(n.begun, m, begins<<32|uint64(i))
	}
	m.k.Run()
	return m.close()
}

// Handle implements sim.Handler.
func (m *model) Handle(k *sim.Kernel, arg uint64) {
	i := int(uint32(arg))
	switch arg >> 32 {
	case begins:
		m.begin(k.Now(), i)
	case probed:
		m.probe(k.Now(), i)
	case answered:
		m.place(k.Now(), i)
	case informed:
		m.inform(k.Now(), i)
	case came:
		m.write(k.Now(), i)
	case served:
		m.queues.Add(twochoice.Server(i), -WriteBytes)
		if s := &m.servers[i]; s.free > k.Now() {
			k.Post(k.Now()+m.service, m, arg)
		} else {
			s.serving = false
		}
	}
}

// begin sends a node's probes; a scheduler without probes places at once.
func (m *model) begin(now time.Duration, i int) {
	n, s := &m.nodes[i], m.scheduler(i)
	n.probes = s.Probes(m.writes[n.first:n.first+n.count], n.probes[:0])
	n.readings, n.cached = n.readings[:0], n.cached[:0]
	m.round.Messages.Probes += int64(len(n.probes))
	if len(n.probes) == 0 {
		m.unprobed--
		m.place(now, i)
		return
	}
	m.k.Post(now+m.half, m, probed<<32|uint64(i))
}

// probe makes the servers answer.
func (m *model) probe(now time.Duration, i int) {
	n := &m.nodes[i]
	for _, p := range n.probes {
		var r twochoice.Reading
		r, n.cached = m.detector(p.Server, now).Probe(now, p.Bytes, n.cached)
		n.readings = append(n.readings, r)
	}
	m.unprobed--
	m.round.Messages.Answers += int64(len(n.probes))
	m.k.Post(now+m.half, m, answered<<32|uint64(i))
}

// place decides the destinations of a node's writes, sends the decisions, and then the writes one
// after the other.
func (m *model) place(now time.Duration, i int) {
	n := &m.nodes[i]
	writes := m.writes[n.first : n.first+n.count]
	s := m.scheduler(i)
	n.placed = s.Place(now, writes, n.probes, n.readings, n.cached, n.placed[:0])
	n.decisions, n.loads = s.Decide(writes, n.probes, n.readings, n.placed, n.decisions, n.loads)
	if len(n.decisions) > 0 {
		m.round.Messages.Decisions += int64(len(n.decisions))
		m.k.Post(now+m.half, m, informed<<32|uint64(i))
	}
	for j, placed := range n.placed {
		at := n.first + j
		m.targets[at], m.tickets[at] = placed.Server, 0
		if probe := placed.Probe; probe >= 0 {
			m.tickets[at] = n.readings[probe].Ticket
		}
		n.free = max(n.free, now) + m.link
		m.k.Post(n.free+m.half, m, came<<32|uint64(at))
	}
	m.round.Messages.Writes += int64(len(n.placed))
}

// inform gives the decisions and the loads to the servers.
func (m *model) inform(now time.Duration, i int) {
	n := &m.nodes[i]
	// Cached loads are useless once the whole burst has probed, and expire before the next burst:
	// then the report to servers is skipped.
	remember := m.unprobed > 0 || time.Duration(m.core.CacheLifetime) >= gap
	for _, one := range n.decisions {
		d := m.detector(one.Server, now)
		if one.Write < 0 {
			d.Settle(now, one.Ticket, 0)
		} else {
			m.tickets[n.first+int(one.Write)] = d.Settle(now, one.Ticket, WriteBytes)
		}
		if remember {
			d.Remember(now, n.loads)
		}
	}
}

// write delivers a write's data to its server. Nothing can change its end afterwards, so its
// acknowledgement time is known at once.
func (m *model) write(now time.Duration, i int) {
	acknowledged := m.come(m.targets[i], now, m.tickets[i]) + m.half
	m.round.Messages.Acknowledgements++
	if m.targets[i] != m.writes[i].Home {
		m.round.redirected++
		if m.p.Redirects { // to the home server and back (V.A, step 4)
			m.round.Messages.Records += 2
			acknowledged += 2 * m.half
		}
	}
	m.last = max(m.last, acknowledged)
	m.total += acknowledged - m.nodes[i/m.p.PerNode].begun
}

// server is an object server: one first-come-first-served queue with equal service times. A busy
// server's writes end one service time apart, the last at `free`. So `free` alone gives the number
// of writes at any time, and their ends need no events.
type server struct {
	free      time.Duration // time when it becomes idle
	reported  int64         // writes in flight in its detector
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
	done := s.reported - held
	if done == 0 {
		return d
	}
	s.reported = held
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
		s.arrivals = append(s.arrivals, arrival{now, int32(s.reported), true})
	}
	if m.queues != nil && !s.serving {
		s.serving = true
		m.k.Post(now+m.service, m, served<<32|uint64(i))
	}
	s.reported++
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
		s.reported, s.free = s.load, now+time.Duration(s.load)*m.service
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
