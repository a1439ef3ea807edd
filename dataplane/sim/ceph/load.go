package ceph

import (
	"time"

	"hotbed/dataplane/sim"
)

// load is fio on one node. A hotspot is its libaio loop: each job keeps a queue of reads and blocks
// only if the device has no tag. An offered load is blocking reads (psync), split over the jobs.
// They arrive as a Poisson process at a share of the disk's capacity.
type load struct {
	on     bool
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
	spec := sim.BackgroundSpec{
		Jobs: c.cfg.FioJobs, Depth: c.cfg.FioDepth, Block: c.cfg.FioBlock, Range: c.cfg.FioBytes,
	}
	if share > 0 {
		spec.Depth, spec.Sync = 1, true
		spec.Rate = share * c.cfg.Capacity() / float64(c.cfg.FioJobs)
	}
	f.source = sim.NewBackground(spec, o.disk, nil, &f.random)
	f.source.Start(c.k)
}

// plannedLoad is a change of a node's load at a later time.
type plannedLoad struct {
	node  int
	on    bool
	share float64
	plan  uint32
}

// PlanLoad changes a node's load at time t, unless ForgetPlan comes first.
func (c *Cluster) PlanLoad(t time.Duration, node int, on bool, share float64) {
	c.planned = append(c.planned, plannedLoad{node, on, share, c.plan})
	c.k.At(max(t, c.k.Now()), (*onPlannedLoad)(c), uint64(len(c.planned)-1))
}

// ForgetPlan cancels all planned loads.
func (c *Cluster) ForgetPlan() { c.plan++ }

type onPlannedLoad Cluster

func (h *onPlannedLoad) Handle(_ *sim.Kernel, arg uint64) {
	c := (*Cluster)(h)
	if p := c.planned[arg]; p.plan == c.plan {
		c.SetLoad(p.node, p.on, p.share)
	}
}
