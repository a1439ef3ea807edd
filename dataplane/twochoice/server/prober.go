package server

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"hotbed/dataplane/twochoice/protocol"
)

// Prober asks agents for their loads and does nothing with them, to time probes (figure 11), and for
// what they have.
type Prober struct {
	links   *links
	wait    time.Duration
	mu      sync.Mutex
	call    uint64
	waiting map[uint64]chan protocol.Message
}

// NewProber makes one of a cluster.
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

// Probe asks all of the nodes at once, waits for their answers (or as long as the cluster's clients
// do), and says how many came.
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

// Status is what an agent has.
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

// Close ends it.
func (p *Prober) Close() { p.links.close() }

// Query asks an agent where a range of an object that is at home there is: what a read begins with. It
// says of how many pieces the range is.
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
