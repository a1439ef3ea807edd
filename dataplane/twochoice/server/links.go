package server

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"hotbed/dataplane/twochoice/protocol"
)

// links holds one connection per agent, opened on demand and reopened after a failure. Messages
// sent without a connection are lost: the sender repeats what matters.
type links struct {
	addresses []string
	config    *tls.Config
	gate      *gate // of an agent
	receive   func(from protocol.Node, m protocol.Message, cost int64)
	// refused is called for agents that refuse us (another version, another node).
	refused func(node protocol.Node, err error)

	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
	mu     sync.Mutex
	links  []link
}

// link is the connection to one agent.
type link struct {
	wire    *wire
	dialing bool
	waiting []protocol.Message // for the connection being opened
	retry   time.Time
	pause   time.Duration
}

// Pauses between attempts to connect.
const (
	firstPause  = 20 * time.Millisecond
	longPause   = time.Second
	dialTime    = 3 * time.Second
	mostWaiting = 1024 // messages
)

func newLinks(addresses []string, key *Key, g *gate, receive func(protocol.Node, protocol.Message, int64),
	refused func(protocol.Node, error)) *links {
	ctx, cancel := context.WithCancel(context.Background())
	return &links{addresses: addresses, config: key.config(), gate: g, receive: receive, refused: refused, ctx: ctx,
		cancel: cancel, links: make([]link, len(addresses))}
}

// send sends a message to an agent, if there is a connection or one can be opened.
func (l *links) send(to protocol.Node, m protocol.Message) {
	if int(to) >= len(l.addresses) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k := &l.links[to]
	switch {
	case k.wire != nil:
		k.wire.send(m)
	case k.dialing:
		if len(k.waiting) < mostWaiting {
			k.waiting = append(k.waiting, m)
		}
	case l.ctx.Err() == nil && !time.Now().Before(k.retry):
		k.dialing = true
		k.waiting = append(k.waiting[:0], m)
		l.done.Add(1)
		go l.serve(to)
	}
}

// serve opens a connection and reads from it until it fails.
func (l *links) serve(to protocol.Node) {
	defer l.done.Done()
	w, err := l.dial(to)
	l.mu.Lock()
	k := &l.links[to]
	k.dialing = false
	if err != nil {
		k.pause = min(max(2*k.pause, firstPause), longPause)
		k.retry = time.Now().Add(k.pause)
		k.waiting = nil
		l.mu.Unlock()
		return
	}
	k.wire, k.pause = w, 0
	for _, m := range k.waiting {
		w.send(m)
	}
	k.waiting = nil
	l.mu.Unlock()
	stop := context.AfterFunc(l.ctx, func() { w.close(net.ErrClosed) })
	defer stop()
	l.done.Go(func() {
		w.write()
	})
	err = w.read(func(m protocol.Message, cost int64, refused protocol.Code) error {
		if refused == protocol.OK { // otherwise the waiting sender asks again
			l.receive(to, m, cost)
		}
		return nil
	})
	w.close(err)
	l.mu.Lock()
	l.links[to].wire = nil
	l.mu.Unlock()
}

// connect connects to every agent, and names a missing one when ctx is done.
func (l *links) connect(ctx context.Context) error {
	again := time.NewTicker(firstPause)
	defer again.Stop()
	for {
		missing := -1
		for node := range l.addresses {
			l.mu.Lock()
			there := l.links[node].wire != nil
			l.mu.Unlock()
			if !there {
				missing = node
				l.send(protocol.Node(node), protocol.Message{Kind: protocol.Hello, Version: protocol.Version,
					Node: protocol.Node(node)})
			}
		}
		if missing < 0 {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("there is no connection to agent %d at %s: %w", missing, l.addresses[missing], ctx.Err())
		}
	}
}

// dial connects and says hello.
func (l *links) dial(to protocol.Node) (*wire, error) {
	ctx, cancel := context.WithTimeout(l.ctx, dialTime)
	defer cancel()
	dialer := tls.Dialer{Config: l.config}
	conn, err := dialer.DialContext(ctx, "tcp", l.addresses[to])
	if err != nil {
		return nil, err
	}
	w := newWire(conn.(*tls.Conn), l.gate)
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	hello := protocol.Message{Kind: protocol.Hello, Version: protocol.Version, Node: to}
	welcome, err := greet(w, hello)
	switch {
	case err == nil && welcome.Code != protocol.OK:
		err = welcome.Err()
		l.refused(to, err)
	case errors.Is(err, errForeign), err == nil && (welcome.Kind != protocol.Welcome || welcome.Version != protocol.Version):
		err = fmt.Errorf("what answers at %s as agent %d does not speak version %d of the protocol; deploy the same version "+
			"on both", l.addresses[to], to, protocol.Version)
		l.refused(to, err)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return w, nil
}

// close closes all connections and waits for them.
func (l *links) close() {
	l.mu.Lock()
	l.cancel()
	l.mu.Unlock()
	l.done.Wait()
}

// Prober probes agents for their loads only to time the probes (figure 11), and queries their
// status.
type Prober struct {
	links   *links
	wait    time.Duration
	mu      sync.Mutex
	call    uint64
	waiting map[uint64]chan protocol.Message
}

// NewProber creates a Prober for a cluster.
func NewProber(c Cluster) (*Prober, error) {
	key, err := LoadKey(c.KeyFile)
	if err != nil {
		return nil, err
	}
	p := &Prober{wait: time.Duration(c.Patience), waiting: map[uint64]chan protocol.Message{}}
	p.links = newLinks(c.Agents, key, nil, func(_ protocol.Node, m protocol.Message, _ int64) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if done := p.waiting[m.Call]; done != nil {
			delete(p.waiting, m.Call)
			done <- m
		}
	}, func(protocol.Node, error) {})
	return p, nil
}

// Probe probes all nodes at once, waits for their answers (at most as long as the cluster's
// clients), and returns the number of answers.
func (p *Prober) Probe(ctx context.Context, nodes []protocol.Node, size uint64) (int, error) {
	late, cancel := context.WithTimeout(ctx, p.wait)
	defer cancel()
	done := p.send(nodes, protocol.Message{Kind: protocol.Probe, Size: size})
	for answered := range nodes {
		select {
		case <-done:
		case <-late.Done():
			return answered, ctx.Err()
		}
	}
	return len(nodes), nil
}

// send sends a message to all of the nodes.
func (p *Prober) send(nodes []protocol.Node, m protocol.Message) chan protocol.Message {
	done := make(chan protocol.Message, len(nodes))
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, node := range nodes {
		p.call++
		m.Call = p.call
		p.waiting[p.call] = done
		p.links.send(node, m)
	}
	return done
}

// Status returns an agent's counts.
func (p *Prober) Status(ctx context.Context, node protocol.Node) (protocol.AgentStats, error) {
	var out protocol.AgentStats
	m, err := p.ask(ctx, node, protocol.Message{Kind: protocol.Status})
	if err == nil {
		err = json.Unmarshal(m.Data, &out)
	}
	return out, err
}

// Query asks an agent for the location of a range of an object at home there: the first step of a
// read. It returns the number of pieces.
func (p *Prober) Query(ctx context.Context, node protocol.Node, object string, from, to uint64) (int, error) {
	m, err := p.ask(ctx, node, protocol.Message{Kind: protocol.Query, Object: object, From: from, To: to})
	if err != nil {
		return 0, err
	}
	return len(m.Pieces), m.Err()
}

// ask sends a message to an agent and returns the answer.
func (p *Prober) ask(ctx context.Context, node protocol.Node, m protocol.Message) (protocol.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, p.wait)
	defer cancel()
	select {
	case answer := <-p.send([]protocol.Node{node}, m):
		return answer, nil
	case <-ctx.Done():
		return protocol.Message{}, fmt.Errorf("agent %d did not answer %v within %v; is it running? %w", node, m.Kind,
			p.wait, ctx.Err())
	}
}

// Close closes all connections.
func (p *Prober) Close() { p.links.close() }
