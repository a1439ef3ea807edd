package server

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/protocol"
)

// Client is a client node: its processes share its probes. Methods are safe for concurrent use.
type Client struct {
	cluster Cluster
	links   *links
	start   time.Time
	done    chan struct{} // closed by Close

	mu       sync.Mutex
	machine  *protocol.Client
	waiting  map[uint64]chan protocol.Finished
	stats    func() twochoice.Stats
	last     error // of an agent that refused us
	reported *Oracle
	sent     map[uint64]sent // first sends of unanswered requests; nil if they are not timed
	took     map[protocol.Kind][]time.Duration
	busy     map[uint64]time.Duration // pauses of requests for which agents have no memory
	refused  int                      // Busy answers
}

// Pauses before a request is resent to an agent without memory for it.
const (
	firstBusy = 20 * time.Millisecond
	longBusy  = time.Second
)

// Written is an acknowledged write.
type Written struct {
	Stamp  uint64 // place in the object's order
	Target protocol.Node
}

// UndecidedError reports a write with an unknown outcome.
type UndecidedError struct{ Err error }

func (e *UndecidedError) Error() string {
	return "it is not known whether the write was done: " + e.Err.Error()
}

func (e *UndecidedError) Unwrap() error { return e.Err }

// Connect creates a client of a cluster. It opens connections on demand.
func Connect(c Cluster) (*Client, error) { return connect(c, nil) }

func connect(c Cluster, reported *Oracle) (*Client, error) {
	if err := c.checkFor(reported); err != nil {
		return nil, err
	}
	key, err := LoadKey(c.KeyFile)
	if err != nil {
		return nil, err
	}
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails
	scheduler, err := reported.scheduler(c, mathrand.NewChaCha8(random))
	if err != nil {
		return nil, err
	}
	_, _ = rand.Read(random[:8])
	machine := protocol.NewClient(protocol.ClientConfig{ID: binary.LittleEndian.Uint64(random[:]) | 1,
		Nodes: len(c.Agents), Home: c.Home, Copies: c.Copies, Batch: c.Batch, Attempts: c.Attempts, Scheduler: scheduler})
	client := &Client{cluster: c, start: time.Now(), done: make(chan struct{}), machine: machine,
		waiting: map[uint64]chan protocol.Finished{}, stats: scheduler.Stats, reported: reported,
		busy: map[uint64]time.Duration{}}
	client.links = newLinks(c.Agents, key, nil, func(from protocol.Node, m protocol.Message, _ int64) {
		if m.Code == protocol.Busy {
			client.later(m.Call)
			return
		}
		client.step(func(now time.Duration) {
			delete(client.busy, m.Call)
			if asked, timed := client.sent[m.Call]; timed {
				delete(client.sent, m.Call)
				client.took[asked.kind] = append(client.took[asked.kind], now-asked.at)
			}
			client.machine.Receive(now, protocol.Peer(from), m)
		})
	}, func(_ protocol.Node, err error) {
		client.mu.Lock()
		client.last = err
		client.mu.Unlock()
	})
	return client, nil
}

// Ready connects to all agents in advance, so that measurements include no handshakes. The error
// names an unreachable agent.
func (c *Client) Ready(ctx context.Context) error {
	if err := c.links.connect(ctx); err != nil {
		return c.explained(err)
	}
	return nil
}

// step lets the machine act, and carries out its output.
func (c *Client) step(do func(now time.Duration)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Since(c.start)
	do(now)
	sends, finished := c.machine.Take()
	for _, s := range sends {
		c.links.send(protocol.Node(s.To), s.Message)
		if s.Call == 0 {
			continue
		}
		if _, again := c.sent[s.Call]; c.sent != nil && !again {
			c.sent[s.Call] = sent{s.Kind, now}
		}
		patience := time.Duration(c.cluster.Patience)
		if s.Kind == protocol.Probe {
			patience = time.Duration(c.cluster.ProbePatience)
		}
		call := s.Call
		time.AfterFunc(patience, func() { c.late(call) })
	}
	for _, f := range finished {
		c.waiting[f.Op] <- f
		delete(c.waiting, f.Op)
	}
}

// later resends a request after a pause. The request's patience continues: an agent that is busy
// for too long counts as silent.
func (c *Client) later(call uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused++
	pause := min(max(2*c.busy[call], firstBusy), longBusy)
	c.busy[call] = pause
	time.AfterFunc(pause/2+mathrand.N(pause), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if s, waits := c.machine.Request(call); waits {
			c.links.send(protocol.Node(s.To), s.Message)
		} else {
			delete(c.busy, call)
		}
	})
}

// late reports an unanswered request to the machine.
func (c *Client) late(call uint64) {
	c.mu.Lock()
	late := c.machine.Waiting(call)
	c.mu.Unlock()
	if late {
		c.step(func(now time.Duration) { c.machine.Timeout(now, call) })
	}
}

// do begins an operation and waits for its end.
func (c *Client) do(ctx context.Context, begin func(now time.Duration) (uint64, error)) (protocol.Finished, error) {
	end := make(chan protocol.Finished, 1)
	var op uint64
	var err error
	c.step(func(now time.Duration) {
		select {
		case <-c.done:
			err = errors.New("the client is closed")
			return
		default:
		}
		if op, err = begin(now); err == nil {
			c.waiting[op] = end
		}
	})
	if err != nil {
		return protocol.Finished{}, err
	}
	select {
	case f := <-end:
		return f, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-c.done:
		err = errors.New("the client was closed")
	}
	c.step(func(time.Duration) { c.machine.Cancel(op, err) })
	return <-end, nil
}

// Write writes data at an offset of an object. After success the bytes survive any crash, and the
// caller may change data. An *UndecidedError means that the write may still become visible; after
// any other error it never will. After an error data must not be changed, because a request may
// still be in transit. After success a request to a slow agent may be in transit too. But no record
// names its fragment, and an existing fragment is never rewritten.
func (c *Client) Write(ctx context.Context, object string, offset uint64, data []byte) (Written, error) {
	f, err := c.do(ctx, func(now time.Duration) (uint64, error) { return c.machine.Write(now, object, offset, data) })
	if err != nil {
		return Written{}, err
	}
	if f.Err != nil {
		err = c.explained(f.Err)
		if !f.Decided {
			err = &UndecidedError{err}
		}
		return Written{f.Stamp, f.Target}, err
	}
	c.reported.done(f.Target, len(data))
	return Written{f.Stamp, f.Target}, nil
}

// Read reads n bytes at an offset of an object.
func (c *Client) Read(ctx context.Context, object string, offset, n uint64) ([]byte, error) {
	f, err := c.do(ctx, func(time.Duration) (uint64, error) { return c.machine.Read(object, offset, n) })
	if err != nil {
		return nil, err
	}
	if f.Err != nil {
		return nil, c.explained(f.Err)
	}
	return f.Data, nil
}

// explained adds the reason of an agent's refusal, if any.
func (c *Client) explained(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var refused *protocol.Error
	if c.last == nil || errors.As(err, &refused) {
		return err
	}
	return errors.Join(err, c.last)
}

// Stats returns the scheduler's counts.
func (c *Client) Stats() twochoice.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats()
}

// Close ends the client; operations in progress end with an error.
func (c *Client) Close() {
	c.mu.Lock()
	select {
	case <-c.done:
	default:
		close(c.done)
	}
	c.mu.Unlock()
	c.links.close()
}

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
	return &Oracle{queues: twochoice.NewQueues(twochoice.Servers(agents))}
}

// Connect creates a client that reports its writes to the oracle, and uses it if the cluster's
// scheduler is the oracle.
func (o *Oracle) Connect(c Cluster) (*Client, error) { return connect(c, o) }

// checkFor is Check for a client that may use an oracle.
func (c Cluster) checkFor(o *Oracle) error {
	if c.Scheduler.Scheduler != twochoice.Oracle {
		return c.Check()
	}
	if o == nil {
		return errors.New("the scheduler is the oracle, which needs to know all writes: make its clients in one " +
			"process, by Oracle.Connect")
	}
	asked := c.Scheduler
	c.Scheduler = twochoice.Defaults(twochoice.Fixed)
	return errors.Join(c.Check(), asked.Validate())
}

// scheduler returns the cluster's scheduler, wrapped to report to the oracle if there is one.
func (o *Oracle) scheduler(c Cluster, random twochoice.Random) (twochoice.Scheduler, error) {
	servers := twochoice.Servers(len(c.Agents))
	if o == nil {
		return twochoice.New(c.Scheduler, servers, random, nil)
	}
	inner, err := twochoice.New(c.Scheduler, servers, random, o.queues)
	if err != nil {
		return nil, err
	}
	return &reporting{inner, o, c.Scheduler.Scheduler == twochoice.Oracle}, nil
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

// reporting reports a scheduler's placements to an oracle; the oracle scheduler does so itself.
type reporting struct {
	twochoice.Scheduler
	oracle *Oracle
	itself bool
}

// Place decides, and reports the placements.
func (t *reporting) Place(now time.Duration, writes []twochoice.Write, probes []twochoice.Probe, readings,
	cached []twochoice.Reading, into []twochoice.Placement) []twochoice.Placement {
	t.oracle.mu.Lock()
	defer t.oracle.mu.Unlock()
	before := len(into)
	placed := t.Scheduler.Place(now, writes, probes, readings, cached, into)
	for i, p := range placed[before:] {
		if !t.itself {
			t.oracle.queues.Add(p.Server, float64(writes[i].Bytes))
		}
	}
	return placed
}

type sent struct {
	kind protocol.Kind
	at   time.Duration
}

// TimeSteps makes the client record the duration of each request, from its first send. Call it before
// the first request.
func (c *Client) TimeSteps() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent, c.took = map[uint64]sent{}, map[protocol.Kind][]time.Duration{}
}

// Steps returns the durations of the client's requests of a kind, in answer order; none without
// TimeSteps.
func (c *Client) Steps(kind protocol.Kind) []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.took[kind])
}
