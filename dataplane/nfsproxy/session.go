package nfsproxy

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"hotbed/dataplane/internal/reactor"
	"hotbed/dataplane/internal/sunrpc"
)

// session is a client's connection with its own connection to the server. So a reply's connection
// identifies its client, and xids need no rewriting.
type session struct {
	proxy    *Proxy
	from     netip.AddrPort
	workload int // index in the enforcer's parameters
	client   *reactor.Conn
	server   *reactor.Conn
	reader   sunrpc.Reader
	replies  sunrpc.Follower
	pending  map[uint32]*call // by xid: waiting or at the server
	waiting  calls            // not sent to the server
	ended    func(xid uint32) // the method replied, as a value
	reserved int              // bytes of the client's memory that are reserved
	held     int              // of the budget: reserved, and replies not taken
	granted  int              // of the budget: memory for an arriving record
	began    time.Duration    // start of the arriving record or the connection; 0 for none
	active   time.Duration    // when the client last sent or took a byte
	taken    uint64           // bytes that it had taken then
	ready    bool             // the server's connection is established
	paused   bool             // no more calls are taken for now
	listed   bool             // in its workload's list of sessions that wait for memory
	gone     bool             // the client has gone
	goneAt   time.Duration
	closed   bool
	dirty    bool // in the proxy's list of sessions with calls to send
	owes     bool // in the proxy's list of sessions with replies to send
	whole    bool // buffered replies include a complete one: send before the next one's end
}

// accept adds a new client.
func (p *Proxy) accept(fd int, from netip.AddrPort, server netip.AddrPort) {
	workload, known := p.clients.of(from.Addr())
	if !known {
		if p.parameters.Unknown == UnknownRefuse {
			p.counts.refused++
			_ = unix.Close(fd)
			return
		}
		workload = len(p.workloads) - 1
	}
	p.clock()
	w := p.workloads[workload]
	if w.budget.connections >= p.places {
		w.counts.refused++
		p.log("client %s: workload %s has %d connections, which is all that it may have; this one is refused", from, w.name,
			p.places)
		_ = unix.Close(fd)
		return
	}
	s := &session{proxy: p, began: p.now, active: p.now, from: from, workload: workload, pending: map[uint32]*call{},
		reader: sunrpc.Reader{Most: p.config.maxRecord}}
	s.ended = s.replied
	var err error
	// Nothing is read from the client before the server is connected.
	if s.client, err = reactor.NewConn(p.loop, fd, 0, clientSide{s}); err != nil {
		_ = unix.Close(fd)
		return
	}
	p.sessions[s] = true
	w.budget.connections++
	p.counts.accepted++
	if s.server, err = reactor.Dial(p.loop, server, serverSide{s}); err != nil {
		s.lose(fmt.Errorf("no connection to the server: %w", err))
	}
}

type clientSide struct{ *session }
type serverSide struct{ *session }

// Ready is called when the client sent bytes, can take more, or has gone.
func (c clientSide) Ready(events uint32) {
	s := c.session
	if events&reactor.Writable != 0 {
		s.client.Flush()
		s.account()
		s.resume()
	}
	if events&(reactor.Readable|reactor.Broken) != 0 && !s.gone && (s.ready || events&reactor.Broken != 0) {
		s.receive()
	}
}

// Ready is called when the server answered, can take more, is connected, or has gone.
func (c serverSide) Ready(events uint32) {
	s := c.session
	if s.closed {
		return
	}
	if !s.ready {
		if err := s.server.Connected(); err != nil {
			s.lose(fmt.Errorf("no connection to the server: %w", err))
			return
		}
		s.ready, s.began = true, 0
		s.server.Flush()
		s.server.Wait(true)
		s.client.Wait(true)
		return
	}
	if events&reactor.Writable != 0 {
		s.server.Flush()
	}
	if events&(reactor.Readable|reactor.Broken) != 0 {
		s.answer()
	}
}

// receive reads calls of the client.
func (s *session) receive() {
	p := s.proxy
	n, err := s.client.Read(s.reader.Space())
	if err != nil {
		s.leave(err)
		return
	}
	s.reader.Filled(n)
	p.clock()
	s.active = p.now
	s.take()
}

// take admits calls that have been read, as far as there is memory for them.
func (s *session) take() {
	p := s.proxy
	for !s.gone && !s.closed {
		if s.full() {
			s.pause()
			return
		}
		marked, record, err := s.reader.Next()
		if err != nil {
			s.refuse(err)
			return
		}
		if record == nil {
			s.arriving()
			return
		}
		s.began = 0
		header, err := sunrpc.ParseCall(record)
		if err != nil && !errors.Is(err, sunrpc.ErrNotACall) {
			s.refuse(err)
			return
		}
		if err != nil {
			continue // a reply without a call
		}
		c := p.pool.call()
		c.session, c.bytes = s, marked
		p.describe(c, header)
		s.admit(c)
	}
}

// mostTwins bounds the calls of a connection with the same xid. A client that retransmits has two
// or three; matching a reply takes time for each.
const mostTwins = 16

// admit queues a call or forwards it at once.
func (s *session) admit(c *call) {
	p := s.proxy
	twins := 0
	for t := s.pending[c.xid]; t != nil; t = t.twin {
		twins++
	}
	if twins >= mostTwins {
		p.pool.free(c)
		s.refuse(fmt.Errorf("%d calls have one xid", twins+1))
		return
	}
	s.reserved += c.reserve
	s.account()
	c.twin = s.pending[c.xid]
	s.pending[c.xid] = c
	if !c.queued {
		p.counts.passed++
		p.send(c)
		return
	}
	s.waiting.push(c)
	p.enforcer.Arrive(p.now, &c.request)
	p.dispatch()
	if c.sentAt == 0 {
		p.pool.keep(c)
	}
}

// pause leaves further calls unread: the client's own connection fills up.
func (s *session) pause() {
	if !s.paused {
		s.paused = true
		s.proxy.counts.paused++
		s.client.Wait(false)
	}
	s.list()
}

// resume takes calls again once there is memory.
func (s *session) resume() {
	if s.closed || s.gone {
		return
	}
	if err := s.client.Failed(); err != nil {
		s.leave(err)
		return
	}
	if s.paused && !s.full() && !s.lacks() {
		s.paused = false
		if s.began > 0 { // it was not read during the pause
			s.began = s.proxy.now
		}
		s.client.Wait(true)
		s.take()
	}
}

// mostKept is the most of an incomplete reply that is kept: a whole reply of 1 MiB, the largest
// that NFS clients ask for, and the next one after it. A longer reply is forwarded as it arrives.
const mostKept = 2 << 20

// answer reads the server's bytes and forwards them unchanged, after the reply is complete and the
// server has its next call. Sending a megabyte occupies the thread, which would notice the reply's
// end late and leave the server idle meanwhile.
func (s *session) answer() {
	p := s.proxy
	n, err := s.server.Read(p.scratch)
	if err != nil {
		s.lose(err)
		return
	}
	if n == 0 {
		return
	}
	bytes := p.scratch[:n]
	if !s.gone {
		s.client.Keep(bytes)
		s.account()
		p.owe(s)
	}
	p.clock()
	s.replies.Follow(bytes, s.ended)
	if s.replies.Malformed {
		s.lose(errors.New("the server sent a record without an xid"))
		return
	}
	p.dispatch()
	if s.gone {
		if len(s.pending) == 0 {
			s.end()
		}
		return
	}
	s.resume()
}

// replied is called when the reply to a call is complete.
func (s *session) replied(xid uint32) {
	s.whole = true
	c := s.pending[xid]
	// Among calls with the same xid, the one sent first is answered.
	var sent *call
	for ; c != nil; c = c.twin {
		if c.sentAt > 0 {
			sent = c
		}
	}
	if sent == nil {
		s.proxy.counts.unmatched++
		return
	}
	s.drop(sent)
	s.proxy.answered(sent)
}

// forget gives back what a call held. The call is in no list any more.
func (s *session) forget(c *call) {
	s.reserved -= c.reserve
	s.account()
	s.proxy.pool.free(c)
}

// refuse ends a session with a client that sends no valid RPC.
func (s *session) refuse(err error) {
	s.proxy.counts.malformed++
	s.proxy.log("client %s: %v; the connection is closed", s.from, err)
	s.leave(err)
}

// leave is called when the client has gone. Waiting calls are forgotten. Calls at the server stay
// outstanding until the server has answered, because the device works on them.
func (s *session) leave(err error) {
	if s.gone || s.closed {
		return
	}
	p := s.proxy
	p.clock()
	s.gone, s.goneAt = true, p.now
	if !errors.Is(err, io.EOF) {
		p.counts.broken++
	}
	s.client.Close()
	s.release()
	s.account()
	s.forgetWaiting()
	if len(s.pending) == 0 || !s.ready {
		s.end()
	}
}

func (s *session) forgetWaiting() {
	p := s.proxy
	for c := s.waiting.first; c != nil; c = s.waiting.first {
		s.waiting.remove(c)
		p.enforcer.Remove(p.now, &c.request)
		p.counts.abandoned++
		s.drop(c)
		s.forget(c)
	}
}

// drop removes a call from the pending ones.
func (s *session) drop(c *call) {
	at := s.pending[c.xid]
	if at == c {
		if c.twin == nil {
			delete(s.pending, c.xid)
		} else {
			s.pending[c.xid] = c.twin
		}
		return
	}
	for ; at != nil; at = at.twin {
		if at.twin == c {
			at.twin = c.twin
			return
		}
	}
}

// lose is called when the server's connection is lost. The client's connection is closed too. The
// client then reconnects and resends its calls, as it does without a proxy.
func (s *session) lose(err error) {
	if s.closed {
		return
	}
	p := s.proxy
	p.clock()
	p.counts.lost++
	if !s.gone {
		p.log("client %s: the server is gone (%v); the connection is closed", s.from, err)
		s.gone = true
		s.client.Close()
	}
	s.release()
	s.forgetWaiting()
	s.end()
	p.dispatch()
}

// end closes the rest. Calls at the server no longer count.
func (s *session) end() {
	s.closed = true
	p := s.proxy
	for _, c := range s.pending {
		for c != nil {
			next := c.twin
			if c.queued {
				p.outstanding.remove(c)
				p.enforcer.Done(p.now, &c.request)
			}
			p.counts.abandoned++
			s.forget(c)
			c = next
		}
	}
	s.pending = nil
	if s.server != nil {
		s.server.Close()
	}
	s.client.Close()
	s.release()
	s.account()
	if p.sessions[s] {
		p.workloads[s.workload].budget.connections--
	}
	delete(p.sessions, s)
}

// reclassify determines the session's workload again.
func (s *session) reclassify() {
	workload, known := s.proxy.clients.of(s.from.Addr())
	if !known {
		workload = len(s.proxy.workloads) - 1
	}
	s.workload = workload
	s.enter()
}
