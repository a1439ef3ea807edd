package nfsproxy

import (
	"fmt"
	"io"
	"time"

	"hotbed/dataplane/internal/admission"
	"hotbed/dataplane/internal/sunrpc"
)

// keptDescriptors are for all but clients and servers: the sockets that are listened at, the control
// socket's and the metrics' connections, and log, profile and traces. A workload's trace is one more.
const keptDescriptors = 32

// places returns how many connections each of so many workloads may have: each takes two descriptors, and
// all workloads together no more than there are.
func (c *Config) places(workloads int) (int, error) {
	descriptors := admission.Descriptors()
	places := (descriptors - keptDescriptors - workloads) / 2 / workloads
	if places < 2 {
		return 0, fmt.Errorf("%d workloads, the unknown one included, need %d file descriptors for two connections each, and the "+
			"limit is %d; raise it (LimitNOFILE of the unit, ulimit -n)", workloads, keptDescriptors+5*workloads, descriptors)
	}
	return min(places, c.Connections), nil
}

// Memory returns about how many bytes the proxy takes when all its workloads use up theirs.
func (c *Config) Memory() int64 {
	return 64<<20 + int64(1+len(c.Parameters.Workloads))*int64(c.workloadMemory)
}

// budget is what the clients of a workload have of the proxy together.
type budget struct {
	connections int
	held        int // bytes of calls, of replies to come and of replies not taken
	arriving    int // bytes for long calls that are not whole
	waiting     []*session
	relieved    bool
}

// memory returns how many bytes of the proxy's memory a workload's clients take.
func (b *budget) memory() int { return b.held + b.arriving }

// account keeps the workload's budget in step with what the session holds.
func (s *session) account() {
	b := &s.proxy.workloads[s.workload].budget
	held := s.reserved + s.client.Pending()
	b.held += held - s.held
	if held < s.held {
		s.relieve()
	}
	s.held = held
}

// enter counts the session in its workload's budget, which is new.
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

// full returns true if the client has no memory left, or its workload.
func (s *session) full() bool {
	p := s.proxy
	return s.held >= p.config.clientMemory || p.workloads[s.workload].budget.held >= p.config.workloadMemory/2
}

// arriving is called when what was read ends within a record. A long one is read on only with memory for
// all of it: otherwise records that are not whole could take what others need to become whole.
func (s *session) arriving() {
	p := s.proxy
	b := &p.workloads[s.workload].budget
	if s.reader.Buffered() == 0 {
		if b.arriving > p.config.workloadMemory/4 { // what it keeps for its next record may be needed
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

// lacks returns true if there is no memory for the long record that is arriving. One record of a workload
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

// list puts a session that waits for memory into its workload's list.
func (s *session) list() {
	if !s.listed {
		s.listed = true
		b := &s.proxy.workloads[s.workload].budget
		b.waiting = append(b.waiting, s)
	}
}

// relieve notes that a workload has memory again.
func (s *session) relieve() {
	w := s.proxy.workloads[s.workload]
	if len(w.budget.waiting) > 0 && !w.budget.relieved {
		w.budget.relieved = true
		s.proxy.relieved = append(s.proxy.relieved, w)
	}
}

// relieve lets sessions go on that wait for their workload's memory, those first that have waited longest.
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

// tick ends a session whose peer keeps it waiting for too long.
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
		// Of a program that is not queued nobody else notices that no reply comes.
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
