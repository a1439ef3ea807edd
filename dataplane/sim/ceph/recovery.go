package ceph

import (
	"slices"
	"time"

	"hotbed/dataplane/sim"
)

// mover copies PGs to OSDs that should have them: recovery and backfill. A move needs a reservation
// at the primary and at the target (osd_max_backfills), and then copies object by object. After an
// object was read at the primary, the next follows after RecoverySleep, while at most RecoverActive
// are in progress. As in Ceph since Luminous, recovery's I/O runs in the threads of an OSD's
// shards. It holds the PG's lock and has low priority against client operations.
type mover struct {
	moves  []move // by number, including finished moves
	queued []int32
	live   int
}

type move struct {
	pg, from, to int32
	left         int64 // objects not begun
	flight       int
	each         int64 // bytes of an object
	spare        bool  // the PG lacks no replica: Ceph's best effort
	running      bool
	over         bool
}

// fillUp begins the missing copies of an active PG: whole copies for new members, and objects
// written while a member was away.
func (c *Cluster) fillUp(pg int32) {
	state := &c.pgs[pg]
	primary := c.primary(pg)
	for _, osd := range c.osdMap.of(pg) {
		switch {
		case c.moving(pg, osd):
		case !slices.Contains(c.holders(pg), osd):
			c.queueMove(pg, primary, osd, state.objects)
		case state.degraded > 0 && osd != primary && len(c.osdMap.of(pg)) == c.cfg.Size:
			c.queueMove(pg, primary, osd, state.degraded)
			state.degraded = 0
		}
	}
	c.startMoves()
}

func (c *Cluster) moving(pg, to int32) bool {
	return c.pgs[pg].moves > 0 && slices.ContainsFunc(c.mover.moves, func(m move) bool {
		return !m.over && m.pg == pg && m.to == to && m.from == c.primary(pg)
	})
}

func (c *Cluster) queueMove(pg, from, to int32, objects int64) {
	m := &c.mover
	each := int64(0)
	if state := &c.pgs[pg]; state.objects > 0 {
		each = state.bytes / state.objects
	}
	spare := len(c.members(pg)) == c.cfg.Size && c.pgs[pg].degraded == 0
	m.moves = append(m.moves, move{pg: pg, from: from, to: to, left: objects, each: each, spare: spare})
	m.queued = append(m.queued, int32(len(m.moves)-1))
	m.live++
	c.pgs[pg].moves++
}

// startMoves begins every queued move that gets its reservations.
func (c *Cluster) startMoves() {
	m := &c.mover
	kept := m.queued[:0]
	for _, i := range m.queued {
		v := &m.moves[i]
		if v.over {
			continue
		}
		from, to := c.osds[v.from], c.osds[v.to]
		if from.backfills >= c.cfg.MaxBackfills || to.backfills >= c.cfg.MaxBackfills {
			kept = append(kept, i)
			continue
		}
		from.backfills++
		to.backfills++
		v.running = true
		c.k.After(0, (*onMoveNext)(c), uint64(i))
	}
	m.queued = kept
}

// onMoveNext: a move may begin its next object.
type onMoveNext Cluster

func (h *onMoveNext) Handle(k *sim.Kernel, arg uint64) {
	c, i := (*Cluster)(h), int32(arg)
	v := &c.mover.moves[i]
	if v.over {
		return
	}
	if c.primary(v.pg) != v.from || !slices.Contains(c.osdMap.of(v.pg), v.to) {
		c.endMove(i) // the PG has moved: its next peering begins the needed copies
		return
	}
	if v.left == 0 || v.each == 0 {
		if v.flight == 0 {
			c.moved(i)
		}
		return
	}
	if v.left == 0 {
		return // the objects in flight end it
	}
	if v.flight >= c.cfg.RecoverActive {
		k.After(c.recoverySleep(), h, arg)
		return
	}
	v.left--
	v.flight++
	from := c.osds[v.from]
	r, p := c.newOp(opPull, v.pg, v.from)
	p.slot, p.bytes = i, v.each
	p.offset = c.place(from, c.partRandom.IntN(max(1, c.objects.count)), v.each)
	c.enqueue(from, r, v.pg)
}

func (c *Cluster) recoverySleep() time.Duration {
	if c.mclock() { // sets osd_recovery_sleep to 0
		return time.Millisecond
	}
	return sim.Seconds(max(c.cfg.RecoverySleep, 1e-3))
}

// pulled: an object was read at the primary.
func (c *Cluster) pulled(r ref, p *op) {
	c.release(p)
	c.k.After(c.recoverySleep(), (*onMoveNext)(c), uint64(p.slot))
	c.osds[p.osd].out.Send(c.k, p.bytes, (*onForward)(c), uint64(r))
}

// pushed: an object has left its primary's node.
func (c *Cluster) pushed(r ref) {
	p := *c.at(r)
	c.freeOp(r)
	v := &c.mover.moves[p.slot]
	if v.over {
		return
	}
	child, q := c.newOp(opPush, v.pg, v.to)
	q.slot, q.bytes = p.slot, p.bytes
	q.offset = c.allocate(c.osds[v.to], p.bytes)
	c.receive(child, p.bytes, c.cfg.NodeRate, c.rackOf(p.osd))
}

// recovered: an object of a move is on its target's disk.
func (c *Cluster) recovered(i int32) {
	v := &c.mover.moves[i]
	if v.over {
		return
	}
	v.flight--
	if v.left == 0 && v.flight == 0 {
		c.moved(i)
	}
}

// moved: the target has all data; the map may let it serve.
func (c *Cluster) moved(i int32) {
	v := c.mover.moves[i]
	c.endMove(i)
	state := &c.pgs[v.pg]
	if slices.Contains(c.holders(v.pg), v.to) {
		return
	}
	state.hold = append(slices.Clone(c.holders(v.pg)), v.to)
	c.keep(c.osds[v.to], state.bytes)
	up := c.osdMap.of(v.pg)
	if slices.ContainsFunc(up, func(osd int32) bool { return !slices.Contains(state.hold, osd) }) {
		return // other members are not complete
	}
	c.osdMap.epoch++
	c.remap(v.pg)
	c.afterRemap([]int32{v.pg})
}

// endMove releases a move's reservations.
func (c *Cluster) endMove(i int32) {
	v := &c.mover.moves[i]
	v.over = true
	c.mover.live--
	c.pgs[v.pg].moves--
	if v.running {
		c.osds[v.from].backfills--
		c.osds[v.to].backfills--
	}
	c.startMoves()
}
