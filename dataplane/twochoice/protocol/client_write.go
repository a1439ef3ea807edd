package protocol

import (
	"fmt"
	"math"
	"slices"
	"time"

	"hotbed/dataplane/twochoice"
)

// probe is a group of writes being placed, with its probes (collaborative probe, section III.B).
// Only one probe is in progress; writes that arrive meanwhile share the next.
type probe struct {
	writes   []*operation
	wanted   []twochoice.Write
	probes   []twochoice.Probe
	readings []twochoice.Reading // by probe
	cached   []twochoice.Reading // of other servers, passed on by servers
	left     int
}

func (p *probe) drop(o *operation) {
	if i := slices.Index(p.writes, o); i >= 0 {
		p.writes[i] = nil // keep the position: probes name writes by index
	}
}

// startProbe probes for the waiting writes, unless a probe is in progress.
func (c *Client) startProbe(now time.Duration) {
	for c.probing == nil && len(c.waiting) > 0 {
		n := min(len(c.waiting), c.config.Batch)
		p := &probe{writes: slices.Clone(c.waiting[:n])}
		c.waiting = slices.Delete(c.waiting, 0, n)
		for _, o := range p.writes {
			p.wanted = append(p.wanted, twochoice.Write{Home: twochoice.Server(o.home), Bytes: int64(o.to - o.from)})
		}
		c.probing = p
		var err error
		if p.probes, err = c.config.Scheduler.Probes(now, p.wanted, nil); err != nil {
			p.probes = nil
			c.placed(now, nil, err)
			continue
		}
		p.readings = make([]twochoice.Reading, len(p.probes))
		for i, asked := range p.probes {
			c.call++
			p.readings[i].Server = asked.Server
			send := Send{Peer(asked.Server), Message{Kind: Probe, Call: c.call, Size: uint64(asked.Bytes)}}
			c.calls[c.call] = &exchange{group: p, send: send, piece: i}
			c.sends = append(c.sends, send)
		}
		if c.config.Scheduler.Waits() {
			p.left = len(p.probes)
		}
		c.placeWhenProbed(now)
	}
}

// reading converts a load to a reading.
func reading(l Load) twochoice.Reading {
	return twochoice.Reading{Server: twochoice.Server(l.Node), Answered: true, InFlight: int32(l.InFlight),
		Load: l.Load, Latency: time.Duration(l.Latency), Ticket: twochoice.Ticket(l.Ticket)}
}

// probed handles the answer to a probe.
func (c *Client) probed(now time.Duration, x *exchange, m Message) {
	p := x.group
	if len(m.Loads) == 0 || Peer(m.Loads[0].Node) != x.send.To {
		m.Loads = nil // not an answer to this question
	}
	var cached []twochoice.Reading
	for i, l := range m.Loads {
		if r := reading(l); i == 0 {
			p.readings[x.piece] = r
		} else if int(l.Node) < c.config.Nodes {
			cached = append(cached, r)
		}
	}
	if p != c.probing { // placed without waiting
		c.config.Scheduler.Heard(now, p.readings[x.piece:x.piece+1])
		return
	}
	p.cached = append(p.cached, cached...)
	p.left--
	c.placeWhenProbed(now)
}

// placeWhenProbed places the writes once every probed node answered or timed out.
func (c *Client) placeWhenProbed(now time.Duration) {
	p := c.probing
	if p.left > 0 {
		return
	}
	placements, err := c.config.Scheduler.Place(now, p.wanted, p.probes, p.readings, p.cached, nil)
	c.placed(now, placements, err)
}

// placed begins to store, and informs the nodes that were not chosen.
func (c *Client) placed(now time.Duration, placements []twochoice.Placement, err error) {
	p := c.probing
	c.probing = nil
	loads := p.loads()
	chosen := make([]bool, len(p.probes))
	for i, o := range p.writes {
		if o == nil {
			continue
		}
		if err != nil {
			c.finish(o, Finished{Err: err, Decided: true})
			continue
		}
		to := placements[i]
		o.targets, o.loads = c.withCopies(Node(to.Server), o, loads), loads
		if to.Probe >= 0 {
			chosen[to.Probe] = true
			o.ticket = uint64(p.readings[to.Probe].Ticket)
		}
		c.store(o)
	}
	for i, asked := range p.probes {
		if !chosen[i] && p.readings[i].Ticket != 0 {
			c.sends = append(c.sends, Send{Peer(asked.Server), Message{Kind: Decide,
				Ticket: uint64(p.readings[i].Ticket), Loads: loads}})
		}
	}
	c.startProbe(now)
}

// loads returns the answered loads, for the servers to cache.
func (p *probe) loads() []Load {
	var out []Load
	for _, r := range p.readings {
		if r.Answered && len(out) < MaxLoads {
			out = append(out, Load{Node: Node(r.Server), InFlight: uint32(r.InFlight), Load: r.Load,
				Latency: uint64(r.Latency)})
		}
	}
	return out
}

// withCopies adds the second copy's node: the least loaded other node that answered, else the home,
// else the first node's neighbour.
func (c *Client) withCopies(first Node, o *operation, loads []Load) []Node {
	if c.config.Copies == 1 {
		return []Node{first}
	}
	second, least := o.home, math.Inf(1)
	for _, l := range loads {
		if l.Node != first && l.Load < least {
			second, least = l.Node, l.Load
		}
	}
	if second == first {
		second = Node((int(first) + 1) % c.config.Nodes)
	}
	return []Node{first, second}
}

// withHome reports whether one message to the home both stores and orders the write.
func (c *Client) withHome(o *operation) bool {
	return len(o.targets) == 1 && o.targets[0] == o.home
}

// store sends the bytes (step 3 of figure 8) to the targets that lack them.
func (c *Client) store(o *operation) {
	o.phase = storing
	o.stored = make([]bool, len(o.targets))
	for i := range o.targets {
		c.put(o, i)
	}
}

func (c *Client) put(o *operation, i int) {
	m := Message{Kind: Put, Object: o.object, Write: o.id, From: o.from, To: o.to, Node: o.home,
		Register: c.withHome(o), Low: c.low(), Loads: o.loads, Data: o.data}
	o.asked = o.asked || m.Register
	if i == 0 {
		m.Ticket = o.ticket
	}
	c.ask(o, o.targets[i], i, m)
}

// putDone handles the answer to a put.
func (c *Client) putDone(o *operation, x *exchange, m Message) {
	switch {
	case m.Code == Refused && x.send.To != Peer(o.home):
		c.finish(o, Finished{Err: m.Err(), Decided: !o.asked})
	case m.Kind == RegisterReply || m.Code == Fenced || m.Code == Refused:
		c.registered(o, m)
	case m.Code != OK:
		c.retarget(o, Node(x.send.To))
	default:
		o.stored[x.piece] = true
		if !slices.Contains(o.stored, false) {
			c.register(o)
		}
	}
}

// retarget replaces a target that is full, failed or unresponsive. The new target is the home, or
// the first remaining node after the home.
func (c *Client) retarget(o *operation, from Node) {
	i := slices.Index(o.targets, from)
	o.bad = append(o.bad, from)
	for step := range c.config.Nodes {
		node := Node((int(o.home) + step) % c.config.Nodes)
		if slices.Contains(o.bad, node) || slices.Contains(o.targets, node) {
			continue
		}
		c.hushTarget(o, i)
		o.targets[i], o.stored[i], o.ticket = node, false, 0
		c.put(o, i)
		return
	}
	c.finish(o, Finished{Decided: !o.asked, Err: fmt.Errorf(
		"no agent took %d bytes of %q: the last was %d; free space or wait for the others", o.to-o.from,
		o.object, from)})
}

// hushTarget forgets the requests to target i.
func (c *Client) hushTarget(o *operation, i int) {
	o.calls = slices.DeleteFunc(o.calls, func(call uint64) bool {
		x := c.calls[call]
		if x != nil && x.piece == i {
			delete(c.calls, call)
		}
		return x == nil || x.piece == i
	})
}

// register asks the home to order the write (step 4 of figure 8).
func (c *Client) register(o *operation) {
	c.hush(o)
	o.phase, o.asked = registering, true
	c.ask(o, o.home, 0, Message{Kind: Register, Object: o.object, Write: o.id, From: o.from, To: o.to,
		Targets: o.targets, Low: c.low()})
}

// registered ends a write (step 5), or restarts it after a fence.
func (c *Client) registered(o *operation, m Message) {
	switch m.Code {
	case OK:
		c.finish(o, Finished{Stamp: m.Stamp})
	case Fenced:
		c.hush(o)
		c.name(o)
		c.store(o)
	case Full:
		if c.withHome(o) && o.phase == storing && c.config.Nodes > 1 {
			c.retarget(o, o.home)
			return
		}
		c.finish(o, Finished{Err: m.Err()})
	default:
		c.finish(o, Finished{Err: m.Err(), Decided: m.Code == Refused})
	}
}
