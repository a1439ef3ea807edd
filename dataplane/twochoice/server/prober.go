package server

import (
	"context"
	"sync"
	"time"

	"hotbed/dataplane/twochoice/protocol"
)

// Prober asks agents for their loads and does nothing with them: to time probes (figure 11).
type Prober struct {
	links   *links
	wait    time.Duration
	mu      sync.Mutex
	call    uint64
	waiting map[uint64]chan struct{}
}

// NewProber makes one of a cluster.
func NewProber(c Cluster) (*Prober, error) {
	key, err := LoadKey(c.KeyFile)
	if err != nil {
		return nil, err
	}
	p := &Prober{wait: time.Duration(c.Patience), waiting: map[uint64]chan struct{}{}}
	p.links = newLinks(c.Agents, key, func(_ protocol.Node, m protocol.Message) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if done := p.waiting[m.Call]; done != nil && m.Kind == protocol.ProbeReply {
			delete(p.waiting, m.Call)
			done <- struct{}{}
		}
	}, func(protocol.Node, error) {})
	return p, nil
}

// Probe asks all of the nodes at once, waits for their answers (or as long as the cluster's clients
// do), and says how many came.
func (p *Prober) Probe(ctx context.Context, nodes []protocol.Node, size uint64) (int, error) {
	done := make(chan struct{}, len(nodes))
	p.mu.Lock()
	for _, node := range nodes {
		p.call++
		p.waiting[p.call] = done
		p.links.send(node, protocol.Message{Kind: protocol.Probe, Call: p.call, Size: size})
	}
	p.mu.Unlock()
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

// Close ends it.
func (p *Prober) Close() { p.links.close() }
