package server

import (
	"context"
	"crypto/tls"
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
	l.done.Add(1)
	go func() {
		defer l.done.Done()
		w.write()
	}()
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
