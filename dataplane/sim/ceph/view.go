package ceph

import (
	"fmt"
	"slices"
	"time"

	"hotbed/dataplane/sim"
)

// OSDView is the map's entry of an OSD.
type OSDView struct {
	Affinity, Reweight float64
	Up, In             bool
}

// OSDs returns the number of OSDs.
func (c *Cluster) OSDs() int { return len(c.osds) }

// PGs returns the pool's number of PGs and replicas.
func (c *Cluster) PGs() (count, size int) { return c.cfg.PGs, c.cfg.Size }

// Epoch returns the map's epoch.
func (c *Cluster) Epoch() int { return c.osdMap.epoch }

// OSD returns the map's entry of an OSD.
func (c *Cluster) OSD(i int) OSDView {
	m := c.osdMap
	return OSDView{
		Affinity: float64(m.affinity[i]) / maxAffinity,
		Reweight: float64(m.reweight[i]) / inWeight,
		Up:       m.up[i],
		In:       m.reweight[i] > 0,
	}
}

// PGView is the location of a PG; the sets are read-only.
type PGView struct {
	Up, Acting []int32
	Upmap      bool
	Active     bool
	Bytes      int64
}

// PG returns the location of PG number i.
func (c *Cluster) PG(i int) PGView {
	pg := int32(i)
	return PGView{
		Up: c.osdMap.of(pg), Acting: c.members(pg), Upmap: c.osdMap.pinned(pg),
		Active: c.pgs[i].active, Bytes: c.pgs[i].bytes,
	}
}

// note records that a PG's view may have changed.
func (c *Cluster) note(pg int32) {
	if !c.noted[pg] {
		c.noted[pg] = true
		c.changes = append(c.changes, pg)
	}
}

// pin records that a PG's upmaps were changed.
func (c *Cluster) pin(pg int32) {
	c.osdMap.pin(pg)
	c.note(pg)
}

// TakeChanges returns the PGs with possibly changed views since the last call, in numerical order.
func (c *Cluster) TakeChanges() []int32 {
	changes := c.changes
	c.changes = nil
	for _, pg := range changes {
		c.noted[pg] = false
	}
	slices.Sort(changes)
	return changes
}

// Pressure holds one node's cumulative signals.
type Pressure struct {
	Node, OSD time.Duration // time with at least one task of the node, or daemon, waiting for I/O
	Reads     int64
	ReadTime  time.Duration // sum of the latencies of client reads at the OSD
}

// Pressure returns a node's cumulative signals.
func (c *Cluster) Pressure(i int) Pressure {
	o := c.osds[i]
	return Pressure{
		Node: o.disk.Stats(c.k).Stalled, OSD: o.stalled.Some(c.k.Now()),
		Reads: o.reads, ReadTime: o.readTime,
	}
}

// Hot reports whether fio runs on a node, and its number of reads there.
func (c *Cluster) Hot(i int) (on bool, reads int64) {
	return c.osds[i].fio.on, c.osds[i].fio.done()
}

// Saved is all state that a controller may change.
type Saved struct {
	Affinity []float64             `json:"primary_affinity"`
	Reweight []float64             `json:"reweight"`
	Upmap    map[string][]int32    `json:"pg_upmap"`
	Items    map[string][][2]int32 `json:"pg_upmap_items"`
	Balancer string                `json:"balancer"`
}

// Save returns all state that a controller may change.
func (c *Cluster) Save() Saved {
	s := Saved{
		Upmap: map[string][]int32{}, Items: map[string][][2]int32{}, Balancer: "none",
	}
	if c.monitor.balancing {
		s.Balancer = "upmap"
	}
	for i := range c.osds {
		v := c.OSD(i)
		s.Affinity = append(s.Affinity, v.Affinity)
		s.Reweight = append(s.Reweight, v.Reweight)
	}
	for pg, set := range c.osdMap.upmap {
		s.Upmap[c.pgID(pg)] = slices.Clone(set)
	}
	for pg, items := range c.osdMap.items {
		s.Items[c.pgID(pg)] = slices.Clone(items)
	}
	return s
}

func (c *Cluster) pgID(pg int32) string { return fmt.Sprintf("%d.%x", c.cfg.Pool, pg) }

// AtRest reports whether every OSD is up and in, every PG is active and where the map wants it, and
// nothing is being moved.
func (c *Cluster) AtRest() bool {
	for i := range c.osds {
		if !c.osdMap.up[i] || c.osdMap.reweight[i] == 0 {
			return false
		}
	}
	for pg := range c.pgs {
		if !c.pgs[pg].active || c.pgs[pg].hold != nil {
			return false
		}
	}
	return c.mover.live == 0
}

// Settle advances until the cluster is at rest, at most `limit`, and reports whether it is.
func (c *Cluster) Settle(limit time.Duration) bool {
	end := c.k.Now() + limit
	for !c.AtRest() && c.k.Now() < end {
		c.k.RunUntil(min(end, c.k.Now()+100*time.Millisecond))
	}
	return c.AtRest()
}

// Buckets returns a histogram's rows: low, high (nanoseconds) and count, one after the other.
func Buckets(h *sim.Histogram) []int64 {
	var rows []int64
	for _, b := range h.Buckets() {
		rows = append(rows, b.Low, b.High, int64(b.Count))
	}
	return rows
}
