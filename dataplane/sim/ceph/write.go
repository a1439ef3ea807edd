package ceph

import "hotbed/dataplane/sim"

// A write goes to the primary. The primary forwards it to the other members, writes it itself, and
// answers when all have committed.

// replicate forwards a write to the other members.
func (c *Cluster) replicate(r ref) {
	p := *c.at(r)
	o := c.osds[p.osd]
	waits := int32(1)
	for _, member := range c.members(p.pg) {
		if member == p.osd {
			continue
		}
		child, q := c.newOp(opReplica, p.pg, member)
		q.parent, q.bytes, q.slot, q.try = r, p.bytes, p.slot, p.try
		q.offset = c.overwrite(c.osds[member], p.bytes)
		waits++
		o.out.Send(c.k, p.bytes, (*onForward)(c), uint64(child))
	}
	c.at(r).waits = waits
}

// overwrite returns the offset of a client's write. A small open-loop write overwrites existing
// data in place; a large write, like a new object, goes to new space.
func (c *Cluster) overwrite(o *osd, bytes int64) int64 {
	if c.bench.open == nil || bytes >= c.cfg.DeferBytes {
		return c.allocate(o, bytes)
	}
	return c.place(o, c.bench.open.where.IntN(max(1, c.objects.count)), bytes)
}

// allocate returns the offset of an OSD's new data: after its last write, or at the start again at
// the end of the disk.
func (c *Cluster) allocate(o *osd, bytes int64) int64 {
	start := c.dataStart()
	if start+o.writeAt+2*bytes > c.cfg.DiskSize {
		o.writeAt = 0
	}
	at := start + o.writeAt
	o.writeAt += bytes
	return c.clamp(at&^4095, bytes)
}

// onForward: data for another OSD has left the sender's node.
type onForward Cluster

func (h *onForward) Handle(_ *sim.Kernel, arg uint64) {
	c, r := (*Cluster)(h), ref(arg)
	p := c.at(r)
	if p == nil {
		return
	}
	if p.kind == opPull {
		c.pushed(r)
		return
	}
	source := core
	if parent := c.at(p.parent); parent != nil {
		source = c.rackOf(parent.osd)
	}
	c.receive(r, p.bytes, c.cfg.NodeRate, source)
}

// receive delivers data that has just left its sender, in the rack `source`, to an op's OSD.
func (c *Cluster) receive(r ref, bytes int64, from float64, source int32) {
	p := c.at(r)
	o := c.osds[p.osd]
	if o.cut {
		o.held = append(o.held, heldMessage{r, bytes, from})
		return
	}
	o.netIn += bytes
	now, from := c.cross(c.k.Now(), bytes, from, source, c.rackOf(p.osd))
	c.k.At(o.in.end(now, bytes, from, c.cfg.NodeRate), (*onArrive)(c), uint64(r))
}

// onArrive: an operation has reached its OSD.
type onArrive Cluster

func (h *onArrive) Handle(_ *sim.Kernel, arg uint64) { (*Cluster)(h).arrive(ref(arg)) }

// onWritten: a client's data has left its node.
type onWritten Cluster

func (h *onWritten) Handle(_ *sim.Kernel, arg uint64) {
	c, r := (*Cluster)(h), ref(arg)
	if p := c.at(r); p != nil {
		c.receive(r, p.bytes, c.cfg.ClientRate, core)
	}
}

// onAck: a member's commit reaches the waiting primary.
type onAck Cluster

func (h *onAck) Handle(_ *sim.Kernel, arg uint64) {
	c, r := (*Cluster)(h), ref(arg)
	p := c.at(r)
	if p == nil {
		return
	}
	kind, parent, move, osd := p.kind, p.parent, p.slot, p.osd
	c.freeOp(r)
	if kind == opPush {
		c.recovered(move, osd)
	} else if c.at(parent) != nil {
		c.acknowledge(parent)
	}
}

// acknowledge counts a commit of a write and answers the client after the last commit.
func (c *Cluster) acknowledge(r ref) {
	p := c.at(r)
	p.waits--
	if p.waits > 0 {
		return
	}
	o := c.osds[p.osd]
	o.writes++
	o.writeBytes += p.bytes
	if c.bench.current(p) {
		c.pgs[p.pg].writes++
		if c.bench.open == nil { // otherwise it overwrites
			c.store(p.pg, p.bytes, 1)
		}
		if len(c.members(p.pg)) < c.cfg.Size {
			c.pgs[p.pg].degraded++
		}
	}
	c.k.After(sim.Seconds(c.cfg.Delay+c.cfg.ClientOp), (*onComplete)(c), uint64(r))
}
