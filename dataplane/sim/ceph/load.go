package ceph

import (
	"time"

	"hotbed/dataplane/sim"
)

// load is fio on one node. A hotspot is its libaio loop: jobs that keep a queue of reads each and
// block only when the device has no tag. An offered load is blocking reads (psync) that arrive as a
// Poisson process of its share of the disk's capacity, spread over the jobs.
type load struct {
	on    bool
	share float64 // of the disk's capacity; 0 is the hotspot
	gen   uint32  // counts starts and stops, so that I/Os of an earlier load end nothing new
	jobs  []job
	done  int64 // reads finished since the node started
}

type job struct {
	flight  int
	blocked bool
	due     time.Duration // of the next read of an offered load
}

// SetLoad starts fio on a node, in place of what runs there: share 0 is the hotspot, above 0 an
// offered load; off stops it. What is in flight then still ends.
func (c *Cluster) SetLoad(node int, on bool, share float64) {
	o := c.osds[node]
	f := &o.fio
	f.on, f.share = on, share
	f.gen++
	f.jobs = f.jobs[:0]
	if !on {
		return
	}
	for i := range c.cfg.FioJobs {
		f.jobs = append(f.jobs, job{})
		if share > 0 {
			f.jobs[i].due = c.k.Now()
			c.arrival(o, i)
		} else {
			c.readMore(o, i)
		}
	}
}

// fioArg packs what an event of fio's is about.
func fioArg(o *osd, i int) uint64 {
	return uint64(o.id)<<40 | uint64(o.fio.gen&0xffffffff)<<8 | uint64(i)
}

// fioOf is the node and job of an event, false when that load was stopped.
func (c *Cluster) fioOf(arg uint64) (*osd, int, bool) {
	o := c.osds[arg>>40]
	return o, int(arg & 0xff), o.fio.on && o.fio.gen == uint32(arg>>8)
}

func (c *Cluster) fioRead(o *osd, i int, sync bool) bool {
	blocks := c.cfg.FioBytes / c.cfg.FioBlock
	at := int64(i)*c.cfg.FioBytes + c.fioRandom.IntN(blocks)*c.cfg.FioBlock
	read := sim.IO{Offset: at, Bytes: c.cfg.FioBlock, Sync: sync, Admitted: (*onFioAdmitted)(c)}
	return o.disk.Submit(c.k, read, (*onFioRead)(c), fioArg(o, i))
}

// readMore fills a job's queue.
func (c *Cluster) readMore(o *osd, i int) {
	if o.down && o.disk.Down() {
		return
	}
	j := &o.fio.jobs[i]
	for j.flight < c.cfg.FioDepth {
		j.flight++
		if !c.fioRead(o, i, false) {
			j.blocked = true
			return
		}
	}
}

// arrival schedules the next read of an offered load.
func (c *Cluster) arrival(o *osd, i int) {
	j := &o.fio.jobs[i]
	rate := o.fio.share * c.cfg.Capacity() / float64(c.cfg.FioJobs)
	j.due += sim.Seconds(c.fioRandom.Exp() / rate)
	c.k.At(max(j.due, c.k.Now()), (*onFioDue)(c), fioArg(o, i))
}

type onFioDue Cluster

func (h *onFioDue) Handle(_ *sim.Kernel, arg uint64) {
	c := (*Cluster)(h)
	if o, i, on := c.fioOf(arg); on {
		o.fio.jobs[i].flight++
		c.fioRead(o, i, true)
	}
}

type onFioAdmitted Cluster

func (h *onFioAdmitted) Handle(_ *sim.Kernel, arg uint64) {
	c := (*Cluster)(h)
	if o, i, on := c.fioOf(arg); on && o.fio.share == 0 {
		o.fio.jobs[i].blocked = false
		c.readMore(o, i)
	}
}

type onFioRead Cluster

func (h *onFioRead) Handle(_ *sim.Kernel, arg uint64) {
	c := (*Cluster)(h)
	c.osds[arg>>40].fio.done++
	o, i, on := c.fioOf(arg)
	if !on {
		return
	}
	j := &o.fio.jobs[i]
	j.flight--
	switch {
	case o.fio.share > 0:
		c.arrival(o, i)
	case !j.blocked:
		c.readMore(o, i)
	}
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

// ForgetPlan takes back what PlanLoad has planned.
func (c *Cluster) ForgetPlan() { c.plan++ }

type onPlannedLoad Cluster

func (h *onPlannedLoad) Handle(_ *sim.Kernel, arg uint64) {
	c := (*Cluster)(h)
	if p := c.planned[arg]; p.plan == c.plan {
		c.SetLoad(p.node, p.on, p.share)
	}
}
