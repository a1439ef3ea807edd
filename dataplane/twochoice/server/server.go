// Package server is the two-choice scheduler's second backend: an object server on local files with
// its agent, and the client library. It drives the state machines of dataplane/twochoice/protocol
// on sockets, files and the machine's clock, and adds no rules of its own.
package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"sync"
	"time"

	"hotbed/dataplane/internal/admission"
	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/filestore"
	"hotbed/dataplane/twochoice/protocol"
)

// Store holds an agent's bytes: fragments, bases and the log, such as a filestore.Disk.
type Store interface {
	// Do carries out a disk operation. Many goroutines call it, but only one for the log.
	Do(op protocol.DiskOp) protocol.DiskDone
	Close() error
}

// Server is a running object server.
type Server struct {
	node     protocol.Node
	cluster  Cluster
	log      *log.Logger
	store    Store
	after    func() error        // releases what Start acquired
	listener *admission.Listener // of connections without the key so far
	places   int                 // maximum number of connections with the key
	config   *tls.Config
	links    *links
	gate     *gate
	start    time.Time
	epoch    time.Duration // the agent's clock at start

	agent  *protocol.Agent
	events chan event
	disk   chan protocol.DiskOp // for the store's workers
	logs   chan protocol.DiskOp // for the log's worker
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	// Owned by the loop.
	peers   map[protocol.Peer]*wire
	next    protocol.Peer
	ops     map[uint64]int // bytes of the disk operations in progress
	backlog int            // bytes of the agent's pending operations

	mu  sync.Mutex
	err error
}

// event is an event for the loop: exactly one of its parts is set.
type event struct {
	from    protocol.Peer
	message *protocol.Message
	cost    int64 // reserved for the message
	disk    *protocol.DiskDone
	joined  *wire
	left    *wire
}

// workers is the number of concurrent store operations: the disk's queue orders them.
const workers = 32

const (
	tick = 50 * time.Millisecond
	// pullPatience is the wait for a maintainer's data, and the rest time for a busy node or a disk
	// that refused.
	pullPatience = 2 * time.Second
	compactAbove = 50_000 // records
	// keptDescriptors is the number for all but peer connections: a file for each worker, the log,
	// the folder's lock, the listener and the process. Connections to other agents are additional.
	keptDescriptors = workers + 16
	// mostUnproven limits connections without the key. A further connection replaces the oldest one
	// of the address that has most.
	mostUnproven = 128
	// mostSurplus limits connections with the key that exceed the agent's limit and wait for their
	// refusal.
	mostSurplus = 4
)

// shares splits this many descriptors into connections with and without the key.
func (c Cluster) shares(descriptors int) (proven, unproven int, err error) {
	places := descriptors - keptDescriptors - len(c.Agents)
	unproven = min(places/4, mostUnproven)
	proven = min(places-unproven-mostSurplus, c.Connections)
	if unproven < 2 || proven < 2 {
		return 0, 0, fmt.Errorf("the limit of open files is %d, and an agent of %d needs at least %d; raise it (LimitNOFILE of the "+
			"unit, ulimit -n)", descriptors, len(c.Agents), keptDescriptors+len(c.Agents)+8)
	}
	return proven, unproven, nil
}

// Start opens a node's folder and serves at the node's address until Stop.
func Start(c Cluster, node protocol.Node, path string, out io.Writer) (*Server, error) {
	folder, err := filestore.OpenFolder(path)
	if err != nil {
		return nil, err
	}
	disk, found, err := filestore.OpenDisk(folder, node)
	if err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	s, err := StartOn(c, node, disk, found, out)
	if err != nil {
		return nil, errors.Join(err, disk.Close(), folder.Close())
	}
	s.mu.Lock()
	s.after = folder.Close
	s.mu.Unlock()
	return s, nil
}

// StartOn serves data found on a store, which Wait closes. On an error the store is unchanged.
func StartOn(c Cluster, node protocol.Node, store Store, found filestore.Found, out io.Writer) (*Server, error) {
	if int(node) >= len(c.Agents) {
		return nil, fmt.Errorf("agent %d is not one of the cluster's %d; their numbers begin at 0", node, len(c.Agents))
	}
	key, err := LoadKey(c.KeyFile)
	if err != nil {
		return nil, err
	}
	memory, err := c.RequestMemory()
	if err != nil {
		return nil, err
	}
	s := &Server{node: node, cluster: c, store: store, config: key.config(), after: func() error { return nil },
		gate: &gate{most: memory, node: node}, ops: map[uint64]int{},
		log:    log.New(admission.NewLog(out), fmt.Sprintf("twochoiced %d: ", node), log.LstdFlags|log.Lmsgprefix),
		events: make(chan event, 256), disk: make(chan protocol.DiskOp, 4096), logs: make(chan protocol.DiskOp, 2),
		peers: map[protocol.Peer]*wire{}, next: protocol.FirstClient}
	if err := s.recover(found); err != nil {
		return nil, err
	}
	var unproven int
	if s.places, unproven, err = c.shares(admission.Descriptors()); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", c.Agents[node])
	if err != nil {
		return nil, fmt.Errorf("agent %d cannot listen at %s: %w", node, c.Agents[node], err)
	}
	s.listener = admission.NewListener(listener, unproven)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.links = newLinks(c.Agents, key, s.gate, func(from protocol.Node, m protocol.Message, cost int64) {
		s.post(event{from: protocol.Peer(from), message: &m, cost: cost})
	}, func(to protocol.Node, err error) { s.log.Printf("agent %d refuses: %v", to, err) })
	s.run()
	return s, nil
}

// recover creates the agent from the disk's content.
func (s *Server) recover(found filestore.Found) error {
	r := found.Recovery
	if r.TornBytes > 0 {
		s.log.Printf("cut %d bytes off the end of the redirect log, at byte %d: a crash tore an append that was not "+
			"acknowledged; no orphan is removed until all agents have reported their fragments", r.TornBytes, r.TornAt)
	}
	if r.Repaired > 0 {
		s.log.Printf("wrote %d blocks of the redirect log again that were whole in one copy only", r.Repaired)
	}
	for _, f := range found.Fragments {
		if f.Damage != "" {
			s.log.Print(f.Damage)
		}
	}
	s.log.Printf("recovered %d fragments and %d records", len(found.Fragments), len(found.Records))
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	epoch := binary.LittleEndian.Uint64(random[:])
	detector := twochoice.NewDetector(s.cluster.Scheduler, twochoice.Server(s.node), twochoice.Ticket(epoch>>1|1))
	m := s.cluster.Maintainer
	agent, err := protocol.NewAgent(protocol.AgentConfig{Node: s.node, Nodes: len(s.cluster.Agents), Home: s.cluster.Home,
		Epoch: epoch, Size: s.cluster.ObjectSize, Copies: s.cluster.Copies, IdleOps: m.IdleOps,
		Maintainer: m.MaintainerParameters, CompactAbove: compactAbove, Patience: pullPatience,
		Orphans: time.Duration(m.Orphans), Detector: detector}, found.Fragments, found.Records)
	if err != nil {
		return err
	}
	s.agent = agent
	s.agent.Pause(m.Off)
	// The wall clock gives the time at a start, then a clock that is never set. If the wall clock
	// went back while the agent was down, the agent's time must not.
	s.start, s.epoch = time.Now(), max(time.Duration(time.Now().UnixNano()), s.agent.Now())
	return nil
}

// now returns the agent's time.
func (s *Server) now() time.Duration { return s.epoch + time.Since(s.start) }

// post passes an event to the loop, unless the server ends.
func (s *Server) post(e event) {
	select {
	case s.events <- e:
	case <-s.ctx.Done():
	}
}

func (s *Server) run() {
	for range workers {
		s.work(s.disk)
	}
	s.work(s.logs)
	s.done.Add(2)
	go func() {
		defer s.done.Done()
		s.accept()
	}()
	go func() {
		defer s.done.Done()
		s.loop()
	}()
}

// work carries out disk operations, one at a time.
func (s *Server) work(ops chan protocol.DiskOp) {
	s.done.Go(func() {
		for {
			select {
			case op := <-ops:
				done := s.store.Do(op)
				s.post(event{disk: &done})
			case <-s.ctx.Done():
				return
			}
		}
	})
}

// loop is the only goroutine that uses the agent.
func (s *Server) loop() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	waiting := []protocol.DiskOp{} // for space in s.disk
	for {
		var next protocol.DiskOp
		var room chan protocol.DiskOp
		if len(waiting) > 0 {
			next, room = waiting[0], s.disk
		}
		var e event
		select {
		case e = <-s.events:
			s.take(e)
		case <-ticker.C:
			s.agent.Tick(s.now())
		case room <- next:
			waiting = waiting[1:]
		case <-s.ctx.Done():
			return
		}
		sends, ops := s.agent.Take()
		for _, notice := range s.agent.Notices() {
			s.log.Print(notice)
		}
		if err := s.agent.Failed(); err != nil {
			s.fail(err)
			return
		}
		for _, m := range sends {
			s.send(m)
		}
		s.account(ops, e)
		for _, op := range ops {
			if op.Kind >= protocol.WriteLog {
				s.logs <- op // at most one is in progress
			} else {
				waiting = append(waiting, op)
			}
		}
	}
}

// account reserves memory for new work in the budget, and releases what an event had reserved.
func (s *Server) account(ops []protocol.DiskOp, e event) {
	change := -e.cost
	for _, op := range ops {
		n := len(op.Data) + messageBytes*len(op.Records)
		if op.Kind == protocol.GetFragment || op.Kind == protocol.ReadBase {
			n += int(op.To - op.From)
		}
		s.ops[op.Op] = n
		change += int64(n)
	}
	if e.disk != nil {
		change -= int64(s.ops[e.disk.Op])
		delete(s.ops, e.disk.Op)
	}
	backlog := messageBytes * s.agent.Backlog()
	change += int64(backlog - s.backlog)
	s.backlog = backlog
	s.gate.bytes.Add(change)
}

func (s *Server) take(e event) {
	switch {
	case e.disk != nil:
		if e.disk.Err != nil && !errors.Is(e.disk.Err, protocol.ErrGone) {
			s.log.Print(e.disk.Err)
		}
		s.agent.DiskDone(s.now(), *e.disk)
	case e.joined != nil:
		if len(s.peers) >= s.places+mostSurplus {
			e.joined.close(net.ErrClosed)
			return
		}
		e.joined.surplus = len(s.peers) >= s.places
		s.next++
		s.peers[s.next] = e.joined
		s.done.Add(2)
		go s.serve(s.next, e.joined)
		go func() {
			defer s.done.Done()
			e.joined.write()
		}()
	case e.left != nil:
		delete(s.peers, e.from)
	case e.from < protocol.FirstClient:
		s.agent.Receive(s.now(), e.from, *e.message)
	case s.peers[e.from] == nil: // refused earlier
	case s.peers[e.from].surplus:
		s.send(protocol.Send{To: e.from, Message: protocol.Message{Kind: protocol.Welcome, Code: protocol.Refused,
			Text: fmt.Sprintf("agent %d has %d connections, which is all that it may have: raise `connections` in the cluster "+
				"file, or the limit of open files", s.node, s.places)}})
	case s.gate.bytes.Used() > s.gate.most && (e.message.Kind == protocol.Query || e.message.Kind == protocol.Report):
		// The answer's length is unknown.
		s.refuse(s.peers[e.from], *e.message, protocol.Busy)
	default:
		s.agent.Receive(s.now(), e.from, *e.message)
	}
}

// refuse answers a request that is not admitted.
func (s *Server) refuse(w *wire, m protocol.Message, code protocol.Code) {
	if answer, asked := s.gate.refusal(m, code); asked {
		w.send(answer)
	}
}

func (s *Server) send(m protocol.Send) {
	if m.To < protocol.FirstClient {
		s.links.send(protocol.Node(m.To), m.Message)
		return
	}
	if w := s.peers[m.To]; w != nil {
		w.send(m.Message)
		if m.Kind == protocol.Welcome && m.Code != protocol.OK {
			s.log.Print(m.Text)
			w.finish()
			delete(s.peers, m.To)
		}
	}
}

// accept accepts connections.
func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			if s.ctx.Err() == nil {
				s.log.Printf("cannot accept: %v", err)
				time.Sleep(100 * time.Millisecond) // for example without free file descriptors
				continue
			}
			return
		}
		go func() {
			secure := tls.Server(conn, s.config)
			ctx, cancel := context.WithTimeout(s.ctx, handshake)
			defer cancel()
			err := secure.HandshakeContext(ctx)
			if let := conn.(*admission.Conn).Release(); err != nil || !let {
				s.log.Printf("%s is not let in: %v", conn.RemoteAddr(), cmp.Or(err, net.ErrClosed))
				_ = conn.Close()
				return
			}
			s.post(event{joined: newWire(secure, s.gate)})
		}()
	}
}

// serve passes a peer's messages to the loop; the first must be a hello.
func (s *Server) serve(peer protocol.Peer, w *wire) {
	defer s.done.Done()
	stop := context.AfterFunc(s.ctx, func() { w.close(net.ErrClosed) })
	defer stop()
	greeted := false
	_ = w.conn.SetReadDeadline(time.Now().Add(handshake))
	err := w.read(func(m protocol.Message, cost int64, refused protocol.Code) error {
		if !greeted {
			if m.Kind != protocol.Hello {
				return fmt.Errorf("%v came before hello", m.Kind)
			}
			greeted = true
			_ = w.conn.SetReadDeadline(time.Time{})
		}
		if refused != protocol.OK {
			s.refuse(w, m, refused)
		} else {
			s.post(event{from: peer, message: &m, cost: cost})
		}
		return w.listen()
	})
	if !quiet(err) && s.ctx.Err() == nil {
		s.log.Printf("%s: %v", w.conn.RemoteAddr(), err)
	}
	w.close(err)
	s.post(event{from: peer, left: w})
}

func (s *Server) fail(err error) {
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
	s.cancel()
}

// Wait waits until the server ends: by Stop, or by a disk failure, which it returns.
func (s *Server) Wait() error {
	<-s.ctx.Done()
	_ = s.listener.Close()
	s.links.close()
	s.done.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.err, s.store.Close(), s.after())
}

// Stop ends the server; Wait then returns.
func (s *Server) Stop() { s.cancel() }

// Address returns the listening address.
func (s *Server) Address() net.Addr { return s.listener.Addr() }
