package ceph

import (
	"fmt"
	"slices"
	"time"

	"hotbed/dataplane/internal/limits"
	"hotbed/dataplane/sim"
)

// Fault is a fault, or its repair, on one node.
type Fault struct {
	// Kind is crash (of the daemon; its operations are lost), restart, slow (the disk takes Factor
	// times longer; 1 repairs), cut and heal (the node's link) or delay (adds Seconds to what the
	// node sends; 0 repairs).
	Kind    string  `json:"kind"`
	OSD     int     `json:"osd"`
	Factor  float64 `json:"factor"`
	Seconds float64 `json:"seconds"`
}

// bootTime is the time from a daemon's start until the monitors mark its OSD up.
const bootTime = time.Second

// Break carries out a fault now.
func (c *Cluster) Break(f Fault) error {
	if !c.hasOSD(f.OSD) {
		return fmt.Errorf("there is no osd.%d", f.OSD)
	}
	o := c.osds[f.OSD]
	switch f.Kind {
	case "crash":
		c.crash(o)
	case "restart":
		c.restart(o)
	case "slow":
		if err := limits.Within("factor", f.Factor, 1e-9, 1000); err != nil {
			return err
		}
		o.disk.Slow(f.Factor)
	case "cut":
		o.cut = true
		o.out.Cut(c.k)
	case "heal":
		c.heal(o)
	case "delay":
		if err := limits.Within("seconds", f.Seconds, 0, 3600); err != nil {
			return err
		}
		o.out.Delay(sim.Seconds(f.Seconds))
	default:
		return fmt.Errorf("there is no fault %q: crash, restart, slow, cut, heal or delay", f.Kind)
	}
	return nil
}

// crash ends a daemon and drops its operations. Its disk completes the I/Os that it has.
func (c *Cluster) crash(o *osd) {
	if o.down {
		return
	}
	o.down = true
	o.life++
	for i := range c.ops {
		if p := &c.ops[i]; p.used && p.osd == o.id {
			c.freeOp(ref(p.gen)<<32 | ref(i))
		}
	}
	for i := range c.ops { // forwarded but unreceived messages are lost too
		p := &c.ops[i]
		if p.used && p.kind == opReplica && p.came == 0 && c.at(p.parent) == nil {
			c.freeOp(ref(p.gen)<<32 | ref(i))
		}
	}
	o.shards = c.newShards()
	o.locks = map[int32]*pgLock{}
	o.kvWaiting, o.kvBatch, o.kvBusy, o.held = nil, nil, false, nil
	o.out.Drop(c.k)
	c.dropMoves(o)
	c.k.After(sim.Seconds(c.cfg.DownAfter), sim.Func(c.onDown), uint64(o.life)<<32|uint64(o.id))
}

// dropMoves ends every copy from or to an OSD; a peering restarts the needed ones.
func (c *Cluster) dropMoves(o *osd) {
	for i := range c.mover.moves {
		if v := &c.mover.moves[i]; !v.over && (v.from == o.id || v.to == o.id) {
			c.endMove(int32(i))
		}
	}
}

// onDown: the monitors notice that an OSD is gone.
func (c *Cluster) onDown(k *sim.Kernel, arg uint64) {
	o := c.osds[uint32(arg)]
	if !o.down || o.life != uint32(arg>>32) {
		return
	}
	c.dropMoves(o) // begun before the monitors noticed
	c.osdMap.up[o.id], c.osdMap.all = false, true
	c.publishUp()
	if c.cfg.OutAfter > 0 {
		k.After(sim.Seconds(c.cfg.OutAfter), sim.Func(c.onOut), arg)
	}
}

// onOut: an OSD has been down for so long that its data is copied elsewhere.
func (c *Cluster) onOut(_ *sim.Kernel, arg uint64) {
	o := c.osds[uint32(arg)]
	if o.down && o.life == uint32(arg>>32) && c.osdMap.reweight[o.id] > 0 {
		o.outBy = c.osdMap.reweight[o.id]
		c.osdMap.reweight[o.id], c.osdMap.dirty = 0, true
		c.publish()
	}
}

func (c *Cluster) restart(o *osd) {
	if o.down {
		c.k.After(bootTime, sim.Func(c.onBoot), uint64(o.life)<<32|uint64(o.id))
	}
}

func (c *Cluster) onBoot(_ *sim.Kernel, arg uint64) {
	o := c.osds[uint32(arg)]
	if !o.down || o.life != uint32(arg>>32) {
		return
	}
	c.dropMoves(o)
	o.down = false
	known := c.osdMap.up[o.id] // back before the monitors noticed: its PGs still peer
	c.osdMap.up[o.id], c.osdMap.all = true, true
	if o.outBy > 0 { // marked out for being down: in again
		c.osdMap.reweight[o.id], c.osdMap.dirty, o.outBy = o.outBy, true, 0
	}
	c.publishUp()
	if known {
		c.repeer(o)
	}
}

// repeer makes all PGs of an OSD peer again.
func (c *Cluster) repeer(o *osd) {
	var touched []int32
	for pg := range int32(c.cfg.PGs) {
		if slices.Contains(c.members(pg), o.id) || slices.Contains(c.osdMap.of(pg), o.id) {
			c.peer(pg, none)
			touched = append(touched, pg)
		}
	}
	c.afterRemap(touched)
}

func (c *Cluster) heal(o *osd) {
	if !o.cut {
		return
	}
	o.cut = false
	o.out.Heal(c.k)
	held := o.held
	o.held = nil
	for _, m := range held {
		if c.at(m.r) != nil {
			c.receive(m.r, m.bytes, m.from, c.rackOf(o.id))
		}
	}
}

// load is fio on one node. A hotspot is its libaio loop: each job keeps a queue of reads and blocks
// only if the device has no tag. An offered load is blocking reads (psync), split over the jobs.
// They arrive as a Poisson process at a share of the disk's capacity.
type load struct {
	on     bool
	files  bool // its files are on the node: of every node that is loaded, or is planned to be
	source *sim.Background
	past   int64 // reads done by earlier loads
	random sim.Stream
}

// done returns the number of reads that fio has done on the node.
func (f *load) done() int64 {
	if f.source == nil {
		return f.past
	}
	return f.past + int64(f.source.Latency.Count())
}

// SetLoad starts fio on a node and replaces its current load: share 0 is the hotspot, above 0 an
// offered load; off stops it. I/Os in flight still end.
func (c *Cluster) SetLoad(node int, on bool, share float64) {
	o := c.osds[node]
	f := &o.fio
	f.past = f.done()
	if f.source != nil {
		f.source.Stop(c.k)
		f.source = nil
	}
	f.on = on
	if !on {
		return
	}
	f.files = true
	spec := sim.BackgroundSpec{
		Jobs: c.cfg.FioJobs, Depth: c.cfg.FioDepth, Block: c.cfg.FioBlock, Range: c.cfg.FioBytes,
	}
	if share > 0 {
		spec.Depth, spec.Sync = 1, true
		spec.Rate = share * c.cfg.Capacity() / float64(c.cfg.FioJobs)
	}
	f.source = sim.StartBackground(c.k, spec, o.disk, &f.random)
}

// PlanLoad changes a node's load at time t, unless ForgetPlan comes first.
func (c *Cluster) PlanLoad(t time.Duration, node int, on bool, share float64) {
	plan := c.plan
	c.osds[node].fio.files = c.osds[node].fio.files || on
	c.k.At(max(t, c.k.Now()), sim.Func(func(*sim.Kernel, uint64) {
		if plan == c.plan {
			c.SetLoad(node, on, share)
		}
	}), 0)
}

// ForgetPlan cancels all planned loads.
func (c *Cluster) ForgetPlan() { c.plan++ }
