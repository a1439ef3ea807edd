package server

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"hotbed/dataplane/twochoice/protocol"
)

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
	done := p.ask(nodes, protocol.Message{Kind: protocol.Probe, Size: size})
	late := time.NewTimer(p.wait)
	defer late.Stop()
	for answered := range nodes {
		select {
		case <-done:
		case <-late.C:
			return answered, nil
		case <-ctx.Done():
			return answered, ctx.Err()
		}
	}
	return len(nodes), nil
}

// ask sends a message to all of the nodes.
func (p *Prober) ask(nodes []protocol.Node, m protocol.Message) chan protocol.Message {
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
	late := time.NewTimer(p.wait)
	defer late.Stop()
	select {
	case m := <-p.ask([]protocol.Node{node}, protocol.Message{Kind: protocol.Status}):
		err := json.Unmarshal(m.Data, &out)
		return out, err
	case <-late.C:
		return out, fmt.Errorf("agent %d did not say in %v what it has; is it running?", node, p.wait)
	case <-ctx.Done():
		return out, ctx.Err()
	}
}

// Close closes all connections.
func (p *Prober) Close() { p.links.close() }

// Query asks an agent for the location of a range of an object at home there: the first step of a
// read. It returns the number of pieces.
func (p *Prober) Query(ctx context.Context, node protocol.Node, object string, from, to uint64) (int, error) {
	late := time.NewTimer(p.wait)
	defer late.Stop()
	select {
	case m := <-p.ask([]protocol.Node{node}, protocol.Message{Kind: protocol.Query, Object: object, From: from, To: to}):
		return len(m.Pieces), m.Err()
	case <-late.C:
		return 0, fmt.Errorf("agent %d did not say in %v where %d to %d of %q are; is it running?", node, p.wait, from, to,
			object)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
