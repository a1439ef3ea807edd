package server

import (
	"errors"
	"sync"
	"time"

	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/protocol"
)

// Oracle knows the bytes that the clients of one process have on their way to each agent, without
// asking: what the oracle (join the shortest queue) goes by. Clients with other schedulers may tell
// it what they write too. It knows nothing of what other processes do, nor of what an agent's disk is
// busy with otherwise. A write that failed counts for good: its run says nothing anyway.
type Oracle struct {
	mu     sync.Mutex
	queues *twochoice.Queues
}

// NewOracle returns one that knows of nothing on its way to so many agents.
func NewOracle(agents int) *Oracle {
	return &Oracle{queues: twochoice.NewQueues(twochoice.Numbered(agents))}
}

// Connect makes a client that tells the oracle what it writes, and asks it where the cluster's
// scheduler is the oracle.
func (o *Oracle) Connect(c Cluster) (*Client, error) { return connect(c, o) }

// InFlight are the bytes on their way to an agent.
func (o *Oracle) InFlight(node protocol.Node) float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.queues.Length(twochoice.Server(node))
}

// checkFor is Check for a client that may ask an oracle.
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

// scheduler is the cluster's, that tells the oracle if there is one.
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

// done tells that a write is done.
func (o *Oracle) done(target protocol.Node, bytes int) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queues.Add(twochoice.Server(target), -float64(bytes))
}

// telling is a scheduler that tells an oracle of its placements; the oracle itself does so anyway.
type telling struct {
	twochoice.Scheduler
	oracle *Oracle
	itself bool
}

// Place decides, and tells.
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

// steps are the times of a client's requests, by kind: when each was first sent, and how long its answer took.
type steps struct {
	sent map[uint64]sent
	took map[protocol.Kind][]time.Duration
}

type sent struct {
	kind protocol.Kind
	at   time.Duration
}

// TimeSteps makes the client remember how long each of its requests took. Call it before the first one.
func (c *Client) TimeSteps() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steps = &steps{sent: map[uint64]sent{}, took: map[protocol.Kind][]time.Duration{}}
}

// Steps are the times that the client's requests of a kind took, in the order of their answers: none
// without TimeSteps.
func (c *Client) Steps(kind protocol.Kind) []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.steps == nil {
		return nil
	}
	return append([]time.Duration(nil), c.steps.took[kind]...)
}

// asked notes a request; one that is repeated counts from its first time on.
func (s *steps) asked(now time.Duration, m protocol.Message) {
	if s == nil || m.Call == 0 {
		return
	}
	if _, there := s.sent[m.Call]; !there {
		s.sent[m.Call] = sent{m.Kind, now}
	}
}

// answered notes the first answer to a request.
func (s *steps) answered(now time.Duration, m protocol.Message) {
	if s == nil {
		return
	}
	if asked, there := s.sent[m.Call]; there {
		delete(s.sent, m.Call)
		s.took[asked.kind] = append(s.took[asked.kind], now-asked.at)
	}
}
