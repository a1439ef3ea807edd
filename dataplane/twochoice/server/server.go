// Package server is the second backend of the two-choice scheduler: an object server on local files
// with its agent, and the client library. It drives the state machines of dataplane/twochoice/protocol
// on sockets, files and the machine's clock, and adds no rule of its own.
package server

import (
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

	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/filestore"
	"hotbed/dataplane/twochoice/protocol"
)

// Store is where an agent's bytes are: fragments, bases and the log. filestore.Disk is one; another
// may keep fragments in pools of RADOS.
type Store interface {
	// Do carries out a disk operation. It is called from many goroutines, for the log from one.
	Do(op protocol.DiskOp) protocol.DiskDone
	Close() error
}

// Server is an object server that runs.
type Server struct {
	node     protocol.Node
	cluster  Cluster
	log      *log.Logger
	store    Store
	after    func() error // gives back what Start took
	listener net.Listener
	config   *tls.Config
	links    *links
	start    time.Time
	epoch    time.Duration // what the agent's clock says at start

	agent  *protocol.Agent
	events chan event
	disk   chan protocol.DiskOp // for the store's workers
	logs   chan protocol.DiskOp // for the log's
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	// of the loop
	peers map[protocol.Peer]*wire
	next  protocol.Peer

	mu  sync.Mutex
	err error
}

// event is something that happened: exactly one of its parts is there.
type event struct {
	from    protocol.Peer
	message *protocol.Message
	disk    *protocol.DiskDone
	joined  *wire
	left    *wire
	ask     func()
}

// workers is how many operations of the store are under way at a time: the disk's queue orders them.
const workers = 32

const (
	tick = 50 * time.Millisecond
	// pullPatience is how long to wait for data that a maintainer pulls, and how long a busy node is
	// left alone, or a disk that refused.
	pullPatience = 2 * time.Second
	compactAbove = 50_000 // records
)

// Start opens a node's folder and serves at the node's address until Stop.
func Start(c Cluster, node protocol.Node, path string, out io.Writer) (*Server, error) {
	folder, err := openFolder(path)
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

// StartOn serves what was found on a store, which Wait closes. On an error the store is as it was.
func StartOn(c Cluster, node protocol.Node, store Store, found filestore.Found, out io.Writer) (*Server, error) {
	if int(node) >= len(c.Agents) {
		return nil, fmt.Errorf("agent %d is not one of the cluster's %d; their numbers begin at 0", node, len(c.Agents))
	}
	key, err := LoadKey(c.KeyFile)
	if err != nil {
		return nil, err
	}
	s := &Server{node: node, cluster: c, store: store, config: key.config(), after: func() error { return nil },
		log:    log.New(out, fmt.Sprintf("twochoiced %d: ", node), log.LstdFlags|log.Lmsgprefix),
		events: make(chan event, 256), disk: make(chan protocol.DiskOp, 4096), logs: make(chan protocol.DiskOp, 2),
		peers: map[protocol.Peer]*wire{}, next: protocol.FirstClient}
	if err := s.recover(found); err != nil {
		return nil, err
	}
	if s.listener, err = net.Listen("tcp", c.Agents[node]); err != nil {
		return nil, fmt.Errorf("agent %d cannot listen at %s: %w", node, c.Agents[node], err)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.links = newLinks(c.Agents, key, func(from protocol.Node, m protocol.Message) {
		s.post(event{from: protocol.Peer(from), message: &m})
	}, func(to protocol.Node, err error) { s.log.Printf("agent %d refuses: %v", to, err) })
	s.run()
	return s, nil
}

// recover makes the agent of what is on the disk.
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
	detector, err := twochoice.NewDetector(s.cluster.Scheduler, twochoice.Server(s.node), nil)
	if err != nil {
		return err
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	epoch := binary.LittleEndian.Uint64(random[:])
	detector.FirstTicket(twochoice.Ticket(epoch>>1 | 1))
	m := s.cluster.Maintainer
	s.agent, err = protocol.NewAgent(protocol.AgentConfig{Node: s.node, Nodes: len(s.cluster.Agents), Home: s.cluster.Home,
		Epoch: epoch, Size: s.cluster.ObjectSize, Copies: s.cluster.Copies, IdleOps: m.IdleOps,
		Maintainer: m.MaintainerParameters, CompactAbove: compactAbove, Patience: pullPatience,
		Orphans: time.Duration(m.Orphans), Detector: detector}, found.Fragments, found.Records)
	if err != nil {
		return err
	}
	s.agent.Pause(m.Off)
	// Between starts the wall clock tells the time, afterwards one that is never set; and a wall clock
	// that went back while the agent was down does not make its time go back.
	s.start, s.epoch = time.Now(), max(time.Duration(time.Now().UnixNano()), s.agent.Now())
	return nil
}

// now is the agent's time.
func (s *Server) now() time.Duration { return s.epoch + time.Since(s.start) }

// post hands an event to the loop, unless the server ends.
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
	s.done.Add(1)
	go func() {
		defer s.done.Done()
		for {
			select {
			case op := <-ops:
				done := s.store.Do(op)
				s.post(event{disk: &done})
			case <-s.ctx.Done():
				return
			}
		}
	}()
}

// loop is the only goroutine that touches the agent.
func (s *Server) loop() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	waiting := []protocol.DiskOp{} // for room in s.disk
	for {
		var next protocol.DiskOp
		var room chan protocol.DiskOp
		if len(waiting) > 0 {
			next, room = waiting[0], s.disk
		}
		select {
		case e := <-s.events:
			s.take(e)
		case <-ticker.C:
			s.agent.Tick(s.now())
		case room <- next:
			waiting = waiting[1:]
		case <-s.ctx.Done():
			return
		}
		sends, ops, _ := s.agent.Take()
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
		for _, op := range ops {
			if op.Kind >= protocol.WriteLog {
				s.logs <- op // at most one is under way
			} else {
				waiting = append(waiting, op)
			}
		}
	}
}

func (s *Server) take(e event) {
	switch {
	case e.disk != nil:
		if e.disk.Err != nil && !errors.Is(e.disk.Err, protocol.ErrGone) {
			s.log.Print(e.disk.Err)
		}
		s.agent.DiskDone(s.now(), *e.disk)
	case e.joined != nil:
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
	case e.ask != nil:
		e.ask()
	case e.from < protocol.FirstClient || s.peers[e.from] != nil: // not one that was refused
		s.agent.Receive(s.now(), e.from, *e.message)
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

// accept takes connections.
func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			if s.ctx.Err() == nil {
				s.log.Printf("cannot accept: %v", err)
				time.Sleep(100 * time.Millisecond) // such as when there are no file descriptors left
				continue
			}
			return
		}
		go func() {
			secure := tls.Server(conn, s.config)
			ctx, cancel := context.WithTimeout(s.ctx, handshake)
			defer cancel()
			if err := secure.HandshakeContext(ctx); err != nil {
				s.log.Printf("%s is not let in: %v", conn.RemoteAddr(), err)
				_ = conn.Close()
				return
			}
			s.post(event{joined: newWire(secure)})
		}()
	}
}

// serve hands a peer's messages to the loop; the first has to be a hello.
func (s *Server) serve(peer protocol.Peer, w *wire) {
	defer s.done.Done()
	stop := context.AfterFunc(s.ctx, func() { w.close(net.ErrClosed) })
	defer stop()
	greeted := false
	err := w.read(func(m protocol.Message) error {
		if !greeted && m.Kind != protocol.Hello {
			return fmt.Errorf("%v came before hello", m.Kind)
		}
		greeted = true
		s.post(event{from: peer, message: &m})
		return nil
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

// Wait waits until the server ends: by Stop, or because its disk failed it, which is the error.
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

// Address is where it listens.
func (s *Server) Address() net.Addr { return s.listener.Addr() }

// Stats are the agent's counts.
func (s *Server) Stats() protocol.AgentStats {
	answer := make(chan protocol.AgentStats, 1)
	s.post(event{ask: func() { answer <- s.agent.Stats() }})
	select {
	case out := <-answer:
		return out
	case <-s.ctx.Done():
		return protocol.AgentStats{}
	}
}
