package protocol

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"hotbed/dataplane/sim"
	"hotbed/dataplane/tests/must"
	"hotbed/dataplane/twochoice"
)

// The test transcribes sections III.B and III.C of the paper, message by message, and compares every
// answer and every decision of real clients and agents with the transcription.

// transcribed is a storage server as the paper describes it.
type transcribed struct {
	present  float64 // bytes of the writes that arrived and are not stored yet
	expected map[string]float64
	loads    map[uint64]int // load that a preassignment was made for, by ticket
	seen     map[int]float64
	chosen   map[int]float64
	others   map[Node]otherLoad
}

// otherLoad is a load of another server, and the time of its answer.
type otherLoad struct {
	load float64
	at   time.Duration
}

// question is a scheduler between its probes and its decision.
type question struct {
	writes   map[WriteID]float64
	answers  map[Node]otherLoad
	tickets  map[Node]uint64
	passedOn map[Node]otherLoad // the freshest
}

const unit = 1000 // bytes of a load bin

// cluster is a cluster of real agents and clients, with the transcription of each.
type cluster struct {
	t         *testing.T
	p         twochoice.Parameters
	random    *rand.Rand
	k         *sim.Kernel
	last      map[[2]Peer]time.Duration // messages between two stay in order
	agents    []*Agent
	clients   []*Client
	servers   []transcribed
	questions []question
	// Writes that were placed by a remembered load, and loads that were too old to be passed on.
	remembered, late int
}

func (c *cluster) now() time.Duration { return c.k.Now() }

func (c *cluster) after(delay time.Duration, run func()) {
	c.k.Post(c.now()+delay, sim.Func(func(*sim.Kernel, uint64) { run() }), 0)
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-6 }

// load is l: the present writes and the preassigned ones.
func (s *transcribed) load() float64 {
	l := s.present
	for _, amount := range s.expected {
		l += amount
	}
	return l
}

// p is P(l), from the history of decisions; before any it is one half.
func (s *transcribed) p(l int) float64 { return (s.chosen[l] + 0.5) / (s.seen[l] + 1) }

// toAgent transcribes a message that arrives at a server, and compares the server's answer.
func (c *cluster) toAgent(from Peer, to Node, m Message) {
	s, window := &c.servers[to], time.Duration(c.p.CacheLifetime)
	want := map[Node]otherLoad{}
	own := s.load()
	switch m.Kind {
	case Probe:
		for node, other := range s.others {
			if c.now()-other.at <= window {
				want[node] = other
			} else {
				c.late++
			}
		}
	case Decide:
		for _, l := range m.Loads {
			answered := c.now() - time.Duration(l.Age)
			if known, there := s.others[l.Node]; l.Node != to && (!there || answered >= known.at) {
				s.others[l.Node] = otherLoad{l.Load, answered}
			}
		}
		if c.p.Scheduler.Preassigns() {
			name := fmt.Sprint(m.Ticket)
			if m.Ticket == 0 {
				name = m.Write.String()
			} else {
				l := s.loads[m.Ticket]
				s.seen[l]++
				s.chosen[l] += float64(min(m.Size, 1))
				delete(s.expected, name)
			}
			if m.Size > 0 {
				s.expected[name] = float64(m.Size)
			}
		}
	case Put:
		if c.p.Scheduler.Preassigns() && s.expected[fmt.Sprint(m.Ticket)]+s.expected[m.Write.String()] != float64(len(m.Data)) {
			c.t.Fatalf("agent %d does not expect the %d bytes of %v: %v", to, len(m.Data), m.Write, s.expected)
		}
		delete(s.expected, fmt.Sprint(m.Ticket))
		delete(s.expected, m.Write.String())
		s.present += float64(len(m.Data))
	}
	c.agents[to].Receive(c.now(), from, m)
	c.run(to, func(answer Message) {
		if m.Kind != Probe {
			return
		}
		mine := answer.Loads[0]
		if mine.Node != to || !near(mine.Load, own) || len(answer.Loads) != 1+len(want) {
			c.t.Fatalf("agent %d answers %v; its load is %g, and it knows %v", to, answer.Loads, own, want)
		}
		for _, l := range answer.Loads[1:] {
			if other := want[l.Node]; !near(l.Load, other.load) || c.now()-time.Duration(l.Age) != other.at {
				c.t.Fatalf("agent %d passes on %v at %v and knows %v", to, l, c.now(), other)
			}
		}
		if c.p.Scheduler.Preassigns() { // l' = l + P(l) len_io
			l := int(own / unit)
			s.loads[mine.Ticket] = l
			s.expected[fmt.Sprint(mine.Ticket)] = s.p(l) * float64(m.Size)
		}
	})
}

// run carries out what an agent wants.
func (c *cluster) run(node Node, check func(Message)) {
	sends, ops := c.agents[node].Take()
	for _, s := range sends {
		check(s.Message)
		c.send(Peer(node), s.To, func() { c.toClient(Peer(node), s.To, s.Message) })
	}
	for _, op := range ops {
		c.after(c.delay(60), func() {
			if op.Kind == PutFragment {
				c.servers[node].present -= float64(len(op.Data))
			}
			c.agents[node].DiskDone(c.now(), DiskDone{Op: op.Op})
			c.run(node, func(Message) {})
		})
	}
}

func (c *cluster) delay(ms int) time.Duration {
	return time.Duration(c.random.IntN(ms*1000)) * time.Microsecond
}

func (c *cluster) send(from, to Peer, run func()) {
	at := max(c.now()+c.delay(20), c.last[[2]Peer{from, to}])
	c.last[[2]Peer{from, to}] = at
	c.after(at-c.now(), run)
}

// toClient transcribes an answer that arrives at a scheduler.
func (c *cluster) toClient(from, to Peer, m Message) {
	a := &c.questions[to-FirstClient]
	if m.Kind == ProbeReply {
		a.answers[Node(from)] = otherLoad{m.Loads[0].Load, c.now()}
		a.tickets[Node(from)] = m.Loads[0].Ticket
		for _, l := range m.Loads[1:] {
			answered := c.now() - time.Duration(l.Age)
			if known, there := a.passedOn[l.Node]; !there || answered > known.at {
				a.passedOn[l.Node] = otherLoad{l.Load, answered}
			}
		}
	}
	c.clients[to-FirstClient].Receive(c.now(), from, m)
	c.act(to)
}

// act carries out what a client wants: probes begin a question, and puts are a decision.
func (c *cluster) act(peer Peer) {
	sends, _ := c.clients[peer-FirstClient].Take()
	a := &c.questions[peer-FirstClient]
	var probes, decisions, puts []Send
	for _, s := range sends {
		switch s.Kind {
		case Probe:
			probes = append(probes, s)
		case Decide:
			decisions = append(decisions, s)
		case Put:
			puts = append(puts, s)
		}
		c.send(peer, s.To, func() { c.toAgent(peer, Node(s.To), s.Message) })
	}
	if len(puts) > 0 {
		c.decided(a, decisions, puts)
	}
	if len(probes) > 0 {
		*a = question{map[WriteID]float64{}, map[Node]otherLoad{}, map[Node]uint64{}, map[Node]otherLoad{}}
		to := map[Peer]bool{}
		for _, s := range probes {
			to[s.To] = true
		}
		if len(to) != len(probes) || len(probes)%2 != 0 {
			c.t.Fatalf("the probes go to %v", to)
		}
	}
}

// decided compares a decision: the k least loads of the 2k probed servers and of those that were
// passed on are chosen, and the probed servers learn all their loads in addition to the decision.
func (c *cluster) decided(a *question, decisions, puts []Send) {
	candidates := map[Node]float64{}
	for node, other := range a.passedOn {
		candidates[node] = other.load
	}
	for node, own := range a.answers {
		candidates[node] = own.load
	}
	var all, chosen []float64
	for _, load := range candidates {
		all = append(all, load)
	}
	bytes, got := map[Node]float64{}, map[Node]Message{}
	for _, put := range puts {
		chosen = append(chosen, candidates[Node(put.To)])
		bytes[Node(put.To)], got[Node(put.To)] = float64(len(put.Data)), put.Message
		if _, probed := a.answers[Node(put.To)]; !probed {
			c.remembered++
		}
	}
	slices.Sort(all)
	slices.Sort(chosen)
	if len(a.answers) != 2*len(puts) || len(bytes) != len(puts) || !slices.EqualFunc(chosen, all[:len(puts)], near) {
		c.t.Fatalf("of %d probed servers and loads %v it takes %v", len(a.answers), all, chosen)
	}
	informed := map[Node]bool{}
	for _, s := range decisions {
		node := Node(s.To)
		put, placed := got[node]
		if informed[node] || s.Ticket != a.tickets[node] || s.Size != uint64(bytes[node]) ||
			placed && (s.Write != put.Write || s.Ticket != put.Ticket) || len(s.Loads) != len(a.answers) {
			c.t.Fatalf("agent %d learns %+v; its ticket is %d, its write %+v", node, s.Message, a.tickets[node], put)
		}
		informed[node] = true
		for _, l := range s.Loads {
			own := a.answers[l.Node]
			if !near(l.Load, own.load+bytes[l.Node]) || time.Duration(l.Age) != c.now()-own.at {
				c.t.Fatalf("%v of agent %d is passed on; it answered %v and gets %g bytes", l, l.Node, own, bytes[l.Node])
			}
		}
	}
	for node := range candidates {
		_, probed := a.answers[node]
		if informed[node] != (probed || bytes[node] > 0) {
			c.t.Fatalf("agent %d is probed %v, gets %g bytes, and is informed %v", node, probed, bytes[node], informed[node])
		}
	}
}

func TestEveryMessageIsThatOfThePapersText(t *testing.T) { // III.B, III.C
	remembered, late := 0, 0
	for seed := range uint64(30) {
		policy := []twochoice.Policy{twochoice.Collaborative, twochoice.Both}[seed%2]
		p := twochoice.Simulated(policy)
		p.CacheSize, p.MinWrite = 100, 0
		p.Preassign.Unit, p.Preassign.Lifetime = unit, twochoice.Span(time.Hour)
		if seed%3 == 0 {
			p.Choices = twochoice.HomeRandom
		}
		c := &cluster{t: t, p: p, random: rand.New(rand.NewPCG(seed, 1)), k: sim.New(), last: map[[2]Peer]time.Duration{}}
		const nodes = 12
		home := func(object string) Node { return HomeOf(object, nodes) }
		for node := range Node(nodes) {
			agent, err := NewAgent(AgentConfig{Node: node, Nodes: nodes, Home: home, Epoch: 7, Size: 1 << 20, Copies: 1,
				Maintainer: twochoice.DefaultMaintainer(), Patience: time.Second, Orphans: time.Hour,
				Detector: twochoice.NewDetector(p, twochoice.Server(node), 1)}, nil, nil)
			must.Succeed(t, err)
			agent.Pause(true)
			c.agents = append(c.agents, agent)
			c.servers = append(c.servers, transcribed{0, map[string]float64{}, map[uint64]int{}, map[int]float64{},
				map[int]float64{}, map[Node]otherLoad{}})
			c.run(node, func(Message) {})
		}
		for i := range 5 {
			scheduler, err := twochoice.New(p, nodes, rand.NewPCG(seed, uint64(i)), nil)
			must.Succeed(t, err)
			c.clients = append(c.clients, NewClient(ClientConfig{ID: uint64(i) + 1, Nodes: nodes, Home: home, Copies: 1,
				Batch: 4, Attempts: 3, Scheduler: scheduler}))
			c.questions = append(c.questions, question{})
			for n := range 60 {
				c.after(c.delay(2000), func() {
					data := make([]byte, 1+c.random.IntN(3000))
					_, err := c.clients[i].Write(c.now(), fmt.Sprintf("file-%d/%d", i, n), 0, data)
					must.Succeed(t, err)
					c.act(FirstClient + Peer(i))
				})
			}
		}
		c.k.Run()
		for node := range c.servers {
			if load := c.servers[node].load(); !near(load, 0) || len(c.agents[node].expected) > 0 {
				t.Fatalf("%s, seed %d: at the end agent %d has a load of %g", policy, seed, node, load)
			}
		}
		remembered, late = remembered+c.remembered, late+c.late
	}
	if remembered < 100 || late < 100 {
		t.Fatalf("only %d writes went to remembered servers, and %d loads were too old", remembered, late)
	}
}
