package ceph

import (
	"slices"

	"hotbed/dataplane/sim"
)

// pgState is the state of a placement group outside the map.
//
// A PG peers when its acting set changes. Its members agree in a round of messages and commit the
// result to their disks, a few more often than others. Its old primary first ends the holder of the
// PG's lock. Meanwhile the PG's operations wait. Behind a hotspot each commit waits for the disk.
// So the stall of a change is tenths of a second on idle disks and seconds on busy ones.
//
// If a member of the new set has no data, the set must peer to find out. It then asks the monitors
// for a set with data (Ceph's pg_temp): a second epoch, and a second peering.
type pgState struct {
	interval uint32 // counts the acting sets
	active   bool
	peers    int32 // members with unfinished peering
	watched  bool  // counted in the current step's stall
	temp     bool  // asks for another acting set after peering
	waiting  []ref
	hold     []int32 // holders of all its data; nil: the acting set
	bytes    int64
	objects  int64
	degraded int64 // objects written while a holder was away
	moves    int32 // queued or running copies

	reads, writes int64 // of clients
}

// holders returns the OSDs with all data of a PG.
func (c *Cluster) holders(pg int32) []int32 {
	if hold := c.pgs[pg].hold; hold != nil {
		return hold
	}
	return c.members(pg)
}

// publish makes an epoch from the map's changes and lets the affected PGs peer. It returns their
// number.
func (c *Cluster) publish() int { return c.publishWith(c.osdMap.commit()) }

// publishUp publishes a change of the up OSDs, which also affects PGs that are served by OSDs
// outside their up set.
func (c *Cluster) publishUp() {
	changed := c.osdMap.commit()
	for pg := range int32(c.cfg.PGs) {
		if c.pgs[pg].hold != nil && !slices.Contains(changed, pg) {
			changed = append(changed, pg)
		}
	}
	c.publishWith(changed)
}

func (c *Cluster) publishWith(changed []int32) int {
	c.watch(changed)
	for _, pg := range changed {
		c.remap(pg)
	}
	c.afterRemap(changed)
	return len(changed)
}

// watch begins to measure the stall of a step.
func (c *Cluster) watch(changed []int32) {
	m := &c.monitor
	for _, pg := range m.watching {
		c.pgs[pg].watched = false
	}
	for _, pg := range changed {
		c.pgs[pg].watched = true
	}
	m.watching = changed
	m.watched, m.watchFrom = len(changed), c.k.Now()
	m.stall, m.stalled = 0, false
}

// remap sets a PG's acting set: the up set if all members have the data, else the holders (Ceph's
// pg_temp) until they do.
func (c *Cluster) remap(pg int32) {
	state := &c.pgs[pg]
	c.note(pg)
	up, hold := c.osdMap.of(pg), slices.Clone(c.holders(pg))
	acting := slices.Clone(up)
	complete := !slices.ContainsFunc(up, func(osd int32) bool { return !slices.Contains(hold, osd) })
	if !complete {
		acting = acting[:0]
		for _, list := range [][]int32{c.members(pg), up, hold} {
			for _, osd := range list {
				if len(acting) < c.cfg.Size && c.osdMap.up[osd] && slices.Contains(hold, osd) &&
					!slices.Contains(acting, osd) {
					acting = append(acting, osd)
				}
			}
		}
	}
	state.temp = !complete && state.hold == nil
	before := c.members(pg)
	old := none
	if len(before) > 0 {
		old = before[0]
	}
	state.hold = hold
	if complete && len(up) == c.cfg.Size {
		for _, osd := range hold {
			if !slices.Contains(up, osd) {
				c.keep(c.osds[osd], -state.bytes) // a stray is deleted
			}
		}
		state.hold = nil
	}
	at := int(pg) * c.cfg.Size
	fill(c.acting[at:at+c.cfg.Size], acting)
	c.lead(old, -1)
	c.lead(c.primary(pg), 1)
	c.peer(pg, old)
}

// peer begins the peering of a PG with old primary `old`.
func (c *Cluster) peer(pg, old int32) {
	state := &c.pgs[pg]
	state.interval++
	c.note(pg)
	state.active = false
	state.peers = 0
	taking := append([]int32(nil), c.members(pg)...)
	if len(taking) == 0 {
		return // nobody is there: wait for the next map
	}
	if old != none && !slices.Contains(taking, old) && !c.osds[old].down {
		taking = append(taking, old)
	}
	if state.temp {
		for _, osd := range c.osdMap.of(pg) {
			if !slices.Contains(taking, osd) {
				taking = append(taking, osd)
			}
		}
	}
	for _, osd := range taking {
		o := c.osds[osd]
		if o.down {
			continue
		}
		state.peers++
		r, p := c.newOp(opPeer, pg, osd)
		if most := int64(c.cfg.PeeringCommit); most > 0 {
			p.left = int32(1 + c.peerRandom.IntN(most))
		}
		if l := o.locks[pg]; l != nil && l.holder != 0 {
			l.waiting = slices.Insert(l.waiting, 0, r)
		} else {
			c.peerReady(r)
		}
	}
}

// peerReady: a member has no more operations of the PG.
func (c *Cluster) peerReady(r ref) {
	c.k.After(sim.Seconds(c.cfg.Peering), (*onPeer)(c), uint64(r))
}

type onPeer Cluster

func (h *onPeer) Handle(_ *sim.Kernel, arg uint64) {
	c, r := (*Cluster)(h), ref(arg)
	if p := c.at(r); p != nil {
		c.peered(r, p)
	}
}

// peered: a member is ready to commit, or has committed once.
func (c *Cluster) peered(r ref, p *op) {
	if p.left > 0 && p.interval == c.pgs[p.pg].interval {
		c.commit(c.osds[p.osd], r)
		return
	}
	pg := p.pg
	state := &c.pgs[pg]
	current := p.interval == state.interval
	c.freeOp(r)
	if !current {
		return
	}
	state.peers--
	switch {
	case state.peers > 0 || len(c.members(pg)) < c.cfg.MinSize:
	case state.temp:
		state.temp = false
		arg := uint64(state.interval)<<32 | uint64(pg)
		c.k.After(sim.Seconds(c.cfg.Propose), sim.Func(c.onTemp), arg)
	default:
		c.activate(pg)
	}
}

// onTemp: the map contains the acting set that a PG requested.
func (c *Cluster) onTemp(_ *sim.Kernel, arg uint64) {
	pg := int32(uint32(arg))
	if c.pgs[pg].interval == uint32(arg>>32) {
		c.peer(pg, none)
	}
}

// activate makes a PG serve again.
func (c *Cluster) activate(pg int32) {
	state := &c.pgs[pg]
	c.note(pg)
	state.active = true
	if m := &c.monitor; state.watched {
		state.watched = false
		m.watched--
		if m.watched == 0 {
			m.stall, m.stalled = c.k.Now()-m.watchFrom, true
		}
	}
	waiting := state.waiting
	state.waiting = nil
	primary := c.primary(pg)
	for _, r := range waiting {
		p := c.at(r)
		switch {
		case p == nil:
		case !c.bench.current(p):
			c.freeOp(r)
		case !c.serves(p): // it waited for any primary
			p.osd = primary
			c.bench.route(c, r, p)
		default:
			p.interval, p.came = state.interval, c.k.Now()
			c.enqueue(c.osds[p.osd], r, pg)
		}
	}
	c.fillUp(pg)
}

// afterRemap lets clients resend operations that the new map sends elsewhere.
func (c *Cluster) afterRemap(changed []int32) {
	if len(changed) == 0 {
		return
	}
	b := c.bench
	if b == nil || !b.begun || b.done {
		return
	}
	touched := make([]bool, len(c.pgs))
	for _, pg := range changed {
		touched[pg] = true
	}
	for i := range b.slots {
		if s := &b.slots[i]; s.departed && touched[s.pg] {
			b.send(c, int32(i))
		}
	}
}
