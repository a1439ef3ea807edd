package server

import (
	"errors"
	"sync"
	"time"

	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/protocol"
)

// Oracle knows, without probes, the bytes in transit from this process's clients to each agent,
// which the oracle scheduler (join the shortest queue) needs. Clients with other schedulers may
// report their writes too. It does not know of other processes, nor of other load on an agent's
// disk. A failed write counts forever: its run is invalid anyway.
type Oracle struct {
	mu     sync.Mutex
	queues *twochoice.Queues
}

// NewOracle returns an Oracle for this many agents, with no bytes in transit.
func NewOracle(agents int) *Oracle {
	return &Oracle{queues: twochoice.NewQueues(twochoice.Numbered(agents))}
}

// Connect creates a client that reports its writes to the oracle, and uses it if the cluster's
// scheduler is the oracle.
func (o *Oracle) Connect(c Cluster) (*Client, error) { return connect(c, o) }

// InFlight returns the bytes in transit to an agent.
func (o *Oracle) InFlight(node protocol.Node) float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.queues.Length(twochoice.Server(node))
}

// checkFor is Check for a client that may use an oracle.
func (c Cluster) checkFor(o *Oracle) error {
	if c.Scheduler.Scheduler != twochoice.Oracle {
		return c.Check()
	}
	if o == nil {
		return errors.New("the scheduler is the oracle, which needs to be told of all writes: make its clients in one " +
			"process, by Oracle.Connect")
	}
	asked := c.Scheduler
	c.Scheduler = twochoice.Defaults(twochoice.Fixed)
	return errors.Join(c.Check(), asked.Validate())
}

// scheduler returns the cluster's scheduler, wrapped to report to the oracle if there is one.
func (o *Oracle) scheduler(c Cluster, random twochoice.Random) (twochoice.Scheduler, error) {
	servers := twochoice.Numbered(len(c.Agents))
	if o == nil {
		return twochoice.New(c.Scheduler, servers, random, nil)
	}
	inner, err := twochoice.New(c.Scheduler, servers, random, o.queues)
	if err != nil {
		return nil, err
	}
	return &telling{inner, o, c.Scheduler.Scheduler == twochoice.Oracle}, nil
}

// done reports that a write is done.
func (o *Oracle) done(target protocol.Node, bytes int) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queues.Add(twochoice.Server(target), -float64(bytes))
}

// telling reports a scheduler's placements to an oracle; the oracle scheduler does so itself.
type telling struct {
	twochoice.Scheduler
	oracle *Oracle
	itself bool
}

// Place decides, and reports the placements.
func (t *telling) Place(now time.Duration, writes []twochoice.Write, probes []twochoice.Probe, readings,
	cached []twochoice.Reading, into []twochoice.Placement) ([]twochoice.Placement, error) {
	t.oracle.mu.Lock()
	defer t.oracle.mu.Unlock()
	before := len(into)
	placed, err := t.Scheduler.Place(now, writes, probes, readings, cached, into)
	if err != nil || t.itself {
		return placed, err
	}
	for i, p := range placed[before:] {
		t.oracle.queues.Add(p.Server, float64(writes[i].Bytes))
	}
	return placed, nil
}

// steps holds the times of a client's requests by kind: the first send and the time to the answer.
type steps struct {
	sent map[uint64]sent
	took map[protocol.Kind][]time.Duration
}

type sent struct {
	kind protocol.Kind
	at   time.Duration
}

// TimeSteps makes the client record the duration of each request. Call it before the first request.
func (c *Client) TimeSteps() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steps = &steps{sent: map[uint64]sent{}, took: map[protocol.Kind][]time.Duration{}}
}

// Steps returns the durations of the client's requests of a kind, in answer order; none without
// TimeSteps.
func (c *Client) Steps(kind protocol.Kind) []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.steps == nil {
		return nil
	}
	return append([]time.Duration(nil), c.steps.took[kind]...)
}

// asked records a request; a repeated request counts from its first send.
func (s *steps) asked(now time.Duration, m protocol.Message) {
	if s == nil || m.Call == 0 {
		return
	}
	if _, there := s.sent[m.Call]; !there {
		s.sent[m.Call] = sent{m.Kind, now}
	}
}

// answered records the first answer to a request.
func (s *steps) answered(now time.Duration, m protocol.Message) {
	if s == nil {
		return
	}
	if asked, there := s.sent[m.Call]; there {
		delete(s.sent, m.Call)
		s.took[asked.kind] = append(s.took[asked.kind], now-asked.at)
	}
}
