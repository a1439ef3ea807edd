package burst

import (
	"time"

	"hotbed/dataplane/sim"
	"hotbed/dataplane/twochoice"
)

// model is a cluster, its writing nodes, and the clock. It handles all events; the upper half of an
// event's argument is its kind, the lower half a node, write or server.
type model struct {
	p    Parameters
	k    *sim.Kernel
	core twochoice.Parameters

	half, service, link time.Duration
	informs             bool // servers learn the decisions
	shares              bool // servers also learn others' loads
	latencies           bool // servers know the durations of their writes

	servers   []server
	detectors []*twochoice.Detector
	cluster   *twochoice.Servers
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
	chosen       []bool // by probe
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
		shares:    p.Scheduler.Shares(),
		informs:   p.Scheduler.Shares() || p.Scheduler.Preassigns(),
		latencies: p.Scheduler == twochoice.Prequal,
		servers:   make([]server, p.Servers), detectors: make([]*twochoice.Detector, p.Servers),
		order: make([]int32, p.Servers), nodes: make([]node, p.nodes()),
		cluster: twochoice.Numbered(p.Servers), writes: make([]twochoice.Write, p.Processes),
		targets: make([]twochoice.Server, p.Processes), tickets: make([]twochoice.Ticket, p.Processes),
	}
	if err := m.forget(); err != nil {
		return nil, err
	}
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
	each := 0 // maximum probes of a write
	if m.schedulers[0].Waits() {
		each = 2
		if m.latencies {
			each = m.core.Prequal.Probes
		}
	}
	probes := make([]twochoice.Probe, each*m.p.Processes)
	readings := make([]twochoice.Reading, each*m.p.Processes)
	chosen := make([]bool, each*m.p.Processes)
	placed := make([]twochoice.Placement, m.p.Processes)
	for i := range m.nodes {
		first := i * m.p.PerNode
		count := min(m.p.PerNode, m.p.Processes-first)
		low, high := each*first, each*(first+count)
		m.nodes[i] = node{
			first: first, count: count,
			probes: probes[low:low:high], readings: readings[low:low:high],
			chosen: chosen[low:low:high], placed: placed[first : first : first+count],
		}
	}
}

// forget gives the servers detectors that have learned nothing.
func (m *model) forget() error {
	for i := range m.detectors {
		d, err := twochoice.NewDetector(m.core, twochoice.Server(i), nil)
		if err != nil {
			return err
		}
		m.detectors[i] = d
		m.servers[i].told, m.servers[i].arrivals = 0, nil
	}
	return nil
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
	probes, err := s.Probes(now, m.writes[n.first:n.first+n.count], n.probes[:0])
	must(err)
	n.probes, n.readings, n.cached = probes, n.readings[:0], n.cached[:0]
	m.round.Messages.Probes += int64(len(probes))
	if !s.Waits() || len(probes) == 0 {
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

// place decides the destinations of a node's writes, and sends the writes one after the other.
func (m *model) place(now time.Duration, i int) {
	n := &m.nodes[i]
	writes := m.writes[n.first : n.first+n.count]
	placed, err := m.scheduler(i).Place(now, writes, n.probes, n.readings, n.cached, n.placed[:0])
	must(err)
	n.placed, n.chosen = placed, n.chosen[:len(n.probes)]
	clear(n.chosen)
	for j := range placed {
		at := n.first + j
		m.targets[at], m.tickets[at] = placed[j].Server, 0
		if probe := placed[j].Probe; probe >= 0 {
			n.chosen[probe] = true
			m.tickets[at] = n.readings[probe].Ticket
		}
		n.free = max(n.free, now) + m.link
		m.k.Post(n.free+m.half, m, came<<32|uint64(at))
	}
	m.round.Messages.Writes += int64(len(placed))
	if m.informs {
		m.round.Messages.Decisions += int64(len(n.probes))
		m.k.Post(now+m.half, m, informed<<32|uint64(i))
	}
}

// inform reports the decision and the other loads to the probed servers.
func (m *model) inform(now time.Duration, i int) {
	n := &m.nodes[i]
	// Cached loads are useless once the whole burst has probed, and expire before the next burst:
	// then the report to servers is skipped.
	tell := m.shares && (m.unprobed > 0 || time.Duration(m.core.CacheLifetime) >= gap)
	for j, p := range n.probes {
		d := m.detector(p.Server, now)
		d.Settle(now, n.readings[j].Ticket, n.chosen[j])
		if tell {
			d.Tell(now, n.readings)
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

// must panics on an error, because the model gives the core only valid input.
func must(err error) {
	if err != nil {
		panic("burst: " + err.Error())
	}
}
