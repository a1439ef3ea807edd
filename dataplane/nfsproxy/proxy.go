package nfsproxy

import (
	"fmt"
	"io"
	"net/netip"
	"time"

	"hotbed/dataplane/enforcer"
	"hotbed/dataplane/estimator"
	"hotbed/dataplane/internal/admission"
	"hotbed/dataplane/internal/reactor"
)

// workload is the proxy's state of a workload, in addition to the enforcer's.
type workload struct {
	name      string
	estimator *estimator.Estimator
	files     files
	counts    workloadCounts
	recorder  *recorder
	budget    budget
}

// Proxy is a running proxy. One thread owns it; other threads use do.
type Proxy struct {
	config     Config
	profile    *estimator.Profile
	loop       *reactor.Loop
	listeners  []*reactor.Listener
	logger     io.Writer
	parameters Parameters
	clients    clients
	enforcer   *enforcer.Enforcer
	workloads  []*workload // the parameters' workloads, then that of unknown clients
	sessions   map[*session]bool
	turns      turns      // since the parameters came into force
	dirty      []*session // with calls to send to the server
	owing      []*session // with replies to send to the client
	pool       pool
	scratch    []byte
	now        time.Duration
	wake       time.Duration
	// outstanding are the calls at the server that the enforcer counts, oldest first.
	outstanding calls
	places      int         // connections that each workload may have
	relieved    []*workload // with memory again, and sessions that wait for it
	counts      counts
	recording   time.Duration // start of trace recording, 0 if not recording
	traceFolder string
	traces      *traceWriter
	dismissed   []chunk       // of workloads removed during recording
	ended       chan struct{} // closed when Run has ended
}

// scratchBytes is how much of the server's replies is read at once. It equals the reactor's atOnce,
// so that reading occupies the thread no longer than sending.
const scratchBytes = 128 << 10

// New opens a proxy's sockets; messages go to logger, one per line.
func New(c Config, logger io.Writer) (*Proxy, error) {
	profile, err := estimator.Load(c.Profile)
	if err != nil {
		return nil, err
	}
	loop, err := reactor.New()
	if err != nil {
		return nil, err
	}
	p := &Proxy{config: c, profile: profile, loop: loop, logger: admission.NewLog(logger), sessions: map[*session]bool{},
		scratch: make([]byte, scratchBytes), wake: enforcer.Forever, ended: make(chan struct{})}
	if err := p.apply(c.Parameters); err != nil {
		p.close()
		return nil, err
	}
	services := [][2]netip.AddrPort{{c.nfs, c.nfsServer}}
	if c.Mount != nil {
		services = append(services, [2]netip.AddrPort{c.mount, c.mountServer})
	}
	for _, service := range services {
		listener, err := reactor.Listen(loop, service[0], func(fd int, from netip.AddrPort) {
			p.accept(fd, from, service[1])
		})
		if err != nil {
			p.close()
			return nil, err
		}
		p.listeners = append(p.listeners, listener)
	}
	loop.Alarm = func() { p.clock(); p.dispatch() }
	loop.After = p.flush
	loop.Tick = p.tick
	return p, nil
}

// Addresses returns the listening addresses: NFS, then the mount protocol.
func (p *Proxy) Addresses() []netip.AddrPort {
	var out []netip.AddrPort
	for _, listener := range p.listeners {
		out = append(out, listener.Address)
	}
	return out
}

// Run serves until Stop is called.
func (p *Proxy) Run() error {
	err := p.loop.Run()
	close(p.ended)
	p.close()
	return err
}

// Stop ends Run.
func (p *Proxy) Stop() { p.loop.Stop() }

func (p *Proxy) close() {
	for s := range p.sessions {
		s.gone = true
		s.forgetWaiting()
		s.end()
	}
	for _, listener := range p.listeners {
		listener.Close()
	}
	if err := p.detachRecording()(); err != nil {
		p.log("the trace is not whole: %v", err)
	}
	p.loop.End()
}

func (p *Proxy) log(format string, args ...any) {
	_, _ = fmt.Fprintf(p.logger, "nfsproxy: "+format+"\n", args...)
}

func (p *Proxy) clock() { p.now = max(p.loop.Now(), 1) }

// apply puts parameters into force. On an error nothing has changed.
func (p *Proxy) apply(given Parameters) error {
	inner, table, err := given.checked()
	if err != nil {
		return err
	}
	places, err := p.config.places(len(inner.Workloads))
	if err != nil {
		return err
	}
	p.clock()
	if p.enforcer == nil {
		p.enforcer, err = enforcer.New(inner)
	} else {
		err = p.enforcer.SetParameters(p.now, inner)
	}
	if err != nil {
		return err
	}
	old := map[string]*workload{}
	for _, w := range p.workloads {
		old[w.name] = w
	}
	p.workloads, p.turns, p.places, p.relieved = nil, turns{}, places, nil
	for _, spec := range inner.Workloads {
		w := old[spec.Name]
		if w == nil {
			w = &workload{name: spec.Name, estimator: p.profile.Estimator(), files: files{}}
		}
		delete(old, spec.Name)
		w.counts.longest, w.budget = 0, budget{}
		p.workloads = append(p.workloads, w)
	}
	for _, w := range old {
		p.dismiss(w)
	}
	p.parameters, p.clients = given, table
	for s := range p.sessions {
		s.reclassify()
	}
	p.record()
	p.dispatch()
	return nil
}

// dispatch sends the calls that the enforcer releases.
func (p *Proxy) dispatch() {
	for {
		request, wake := p.enforcer.Next(p.now)
		if request == nil {
			p.wake = wake
			return
		}
		c := request.Data.(*call)
		c.session.waiting.remove(c)
		p.outstanding.push(c)
		p.send(c)
		c.workload.counts.waited.add(p.now - request.Arrived())
	}
}

// send passes a call's bytes to the connection to the server.
func (p *Proxy) send(c *call) {
	c.sentAt = p.now
	s := c.session
	s.server.Queue(c.bytes)
	p.pool.disown(c)
	if !s.dirty {
		s.dirty = true
		p.dirty = append(p.dirty, s)
	}
}

// answered is called when a call's reply has arrived.
func (p *Proxy) answered(c *call) {
	if c.queued {
		p.outstanding.remove(c)
		before := p.enforcer.Service().Busy
		p.enforcer.Done(p.now, &c.request)
		p.turns.add(c.kind, c.size, p.enforcer.Service().Busy-before)
		c.workload.counts.done(c.kind, c.size, p.now-c.request.Arrived(), p.now-c.sentAt)
	}
	c.session.forget(c)
}

// flush sends what was queued in this round, and sets the alarm.
func (p *Proxy) flush() {
	for i := 0; i < len(p.dirty); i++ { // losing a session may make others dirty
		s := p.dirty[i]
		s.dirty = false
		if s.closed {
			continue
		}
		if s.ready {
			s.server.Flush()
		}
		if err := s.server.Failed(); err != nil {
			s.lose(err)
		}
	}
	p.dirty = p.dirty[:0]
	p.reply()
	p.relieve()
	p.loop.WakeAt(p.wake)
}

// owe records that a session has bytes for its client.
func (p *Proxy) owe(s *session) {
	if !s.owes {
		s.owes = true
		p.owing = append(p.owing, s)
	}
}

// reply sends replies to clients, but holds back an incomplete reply of up to mostKept bytes.
func (p *Proxy) reply() {
	partial := p.owing[:0]
	for _, s := range p.owing {
		if !s.gone && !s.closed && !s.whole && !s.replies.BetweenRecords() && s.client.Pending() < mostKept {
			partial = append(partial, s)
			continue
		}
		s.owes, s.whole = false, false
		s.client.Flush()
		s.account()
	}
	clear(p.owing[len(partial):])
	p.owing = partial
}

// tick handles expired waits.
func (p *Proxy) tick() {
	p.clock()
	for _, listener := range p.listeners {
		listener.Resume()
	}
	for c := p.outstanding.first; c != nil; c = p.outstanding.first {
		if p.now-c.sentAt < time.Duration(p.config.ReplyTimeout) {
			break
		}
		p.counts.timedOut++
		s := c.session
		p.log("client %s: no reply to a call for %v; it no longer counts", s.from,
			time.Duration(p.config.ReplyTimeout))
		p.outstanding.remove(c)
		p.enforcer.Done(p.now, &c.request)
		s.drop(c)
		s.forget(c)
		if s.gone && len(s.pending) == 0 {
			s.end()
		}
		s.resume()
	}
	for s := range p.sessions {
		s.tick()
	}
	p.dispatch()
	if p.traces != nil {
		for _, w := range p.workloads {
			p.counts.traceRowsLost += w.recorder.flush(p.traces)
		}
	}
}

// do makes the proxy's thread call f and waits for it; after Run has ended, f may not be called.
func (p *Proxy) do(f func()) {
	done := make(chan struct{})
	p.loop.Do(func() {
		p.clock()
		f()
		close(done)
	})
	select {
	case <-done:
	case <-p.ended:
	}
}
