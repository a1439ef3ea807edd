package nfsproxy

import (
	"fmt"
	"io"
	"time"

	"hotbed/dataplane/internal/admission"
	"hotbed/dataplane/internal/sunrpc"
)

// keptDescriptors are for everything except clients and servers: listening sockets, connections for
// control and metrics, log, profile and traces. Each workload's trace needs one more.
const keptDescriptors = 32

// places returns the number of connections that each workload may have. A connection takes two
// descriptors, and all workloads together must not exceed the limit.
func (c *Config) places(workloads int) (int, error) {
	descriptors := admission.Descriptors()
	places := (descriptors - keptDescriptors - workloads) / 2 / workloads
	if places < 2 {
		return 0, fmt.Errorf("%d workloads, the unknown one included, need %d file descriptors for two connections each, and the "+
			"limit is %d; raise it (LimitNOFILE of the unit, ulimit -n)", workloads, keptDescriptors+5*workloads, descriptors)
	}
	return min(places, c.Connections), nil
}

// Memory returns about how many bytes the proxy takes if all workloads use their whole memory.
func (c *Config) Memory() int64 {
	return 64<<20 + int64(1+len(c.Parameters.Workloads))*int64(c.workloadMemory)
}

// budget is the shared use of the proxy by all clients of a workload.
type budget struct {
	connections int
	held        int // bytes of calls, of expected replies and of replies not yet taken
	arriving    int // bytes for long calls that are incomplete
	waiting     []*session
	relieved    bool
}

// memory returns the number of bytes of the proxy's memory that a workload's clients use.
func (b *budget) memory() int { return b.held + b.arriving }

// account updates the workload's budget with what the session holds.
func (s *session) account() {
	b := &s.proxy.workloads[s.workload].budget
	held := s.reserved + s.client.Pending()
	b.held += held - s.held
	if held < s.held {
		s.relieve()
	}
	s.held = held
}

// enter counts the session in the budget of its new workload.
func (s *session) enter() {
	b := &s.proxy.workloads[s.workload].budget
	b.connections++
	b.held += s.held
	b.arriving += s.granted
	if s.listed = false; s.paused {
		s.list()
		s.relieve()
	}
}

// full returns true if the client or its workload has no memory left.
func (s *session) full() bool {
	p := s.proxy
	return s.held >= p.config.clientMemory || p.workloads[s.workload].budget.held >= p.config.workloadMemory/2
}

// arriving is called if the bytes read end within a record. A long record is read on only with memory
// for all of it. Otherwise incomplete records could take the memory that others need to complete.
func (s *session) arriving() {
	p := s.proxy
	b := &p.workloads[s.workload].budget
	if s.reader.Buffered() == 0 {
		if b.arriving > p.config.workloadMemory/4 { // others may need what it keeps for the next record
			s.release()
		}
		return
	}
	if s.began == 0 {
		s.began = p.now
	}
	if s.lacks() {
		s.pause()
		return
	}
	more := max(s.reader.Need()-s.granted, 0)
	b.arriving += more
	s.granted += more
}

// lacks returns true if there is no memory for the arriving long record. One record per workload
// always has memory.
func (s *session) lacks() bool {
	p := s.proxy
	b := &p.workloads[s.workload].budget
	more := s.reader.Need() - s.granted
	return more > 0 && b.arriving > s.granted && b.arriving+more > p.config.workloadMemory/2
}

// release gives back the memory for long records.
func (s *session) release() {
	if s.granted == 0 {
		return
	}
	if s.reader.Shrink(); s.gone {
		s.reader = sunrpc.Reader{}
	}
	s.proxy.workloads[s.workload].budget.arriving -= s.granted
	s.granted = 0
	s.relieve()
}

// list adds a session that waits for memory to its workload's list.
func (s *session) list() {
	if !s.listed {
		s.listed = true
		b := &s.proxy.workloads[s.workload].budget
		b.waiting = append(b.waiting, s)
	}
}

// relieve records that a workload has memory again.
func (s *session) relieve() {
	w := s.proxy.workloads[s.workload]
	if len(w.budget.waiting) > 0 && !w.budget.relieved {
		w.budget.relieved = true
		s.proxy.relieved = append(s.proxy.relieved, w)
	}
}

// relieve resumes the sessions that wait for their workload's memory, longest wait first.
func (p *Proxy) relieve() {
	relieved := p.relieved
	p.relieved = nil
	for _, w := range relieved {
		waiting := w.budget.waiting
		w.budget.waiting, w.budget.relieved = nil, false
		for i, s := range waiting {
			if w.budget.held >= p.config.workloadMemory/2 {
				w.budget.waiting = append(waiting[i:len(waiting):len(waiting)], w.budget.waiting...)
				break
			}
			s.listed = false
			if s.resume(); s.paused && !s.gone && !s.closed {
				s.list()
			}
		}
	}
}

// tick ends a session if its peer keeps it waiting for too long.
func (s *session) tick() {
	p := s.proxy
	if taken := s.client.Taken(); taken != s.taken {
		s.taken, s.active = taken, p.now
	}
	if s.granted > 0 && s.reader.Buffered() == 0 && p.now-s.active >= time.Second {
		s.release()
	}
	switch {
	case s.gone:
		// If a program is not queued, only this check notices a missing reply.
		if p.now-s.goneAt >= time.Duration(p.config.ReplyTimeout) {
			s.end()
		}
	case !s.ready && p.now-s.began >= time.Duration(p.config.RecordTimeout):
		s.lose(fmt.Errorf("no connection to it in %v", time.Duration(p.config.RecordTimeout)))
	case s.ready && !s.paused && s.began > 0 && p.now-s.began >= time.Duration(p.config.RecordTimeout):
		p.counts.unfinished++
		p.log("client %s: a call is not whole after %v; the connection is closed", s.from,
			time.Duration(p.config.RecordTimeout))
		s.leave(io.EOF)
	case len(s.pending) == 0 && (!s.paused || s.client.Pending() > 0) && p.now-s.active >= time.Duration(p.config.IdleTimeout):
		p.counts.idle++
		s.leave(io.EOF)
	}
}
