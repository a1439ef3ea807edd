package ceph

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"hotbed/dataplane/sim"
)

// reweightByUtilization implements Ceph's reweight::by_utilization (mon/PGMap.cc), in the order of
// the OSDs' distances from the mean utilization. An OSD above oload percent of the mean gets a
// lower weight; an OSD below the mean with a weight below 1 gets a higher one. At most maxOSDs
// change, each by at most maxChange. Used space is raw: objects and the store's own (used.go).
func (c *Cluster) reweightByUtilization(a Action) Effect {
	if a.Oload <= 100 {
		return refused("oload is %d, it must be above 100", a.Oload)
	}
	none := map[string]float64{"weights_changed": 0, "bytes_moved": 0}
	type osdUse struct {
		id  int
		use float64
	}
	total := float64(c.cfg.DiskSize - c.cfg.Scratch)
	uses := make([]osdUse, len(c.osds))
	mean := 0.0
	for i, o := range c.osds {
		uses[i] = osdUse{i, float64(c.toldUsed(o)) / total}
		mean += uses[i].use / float64(len(c.osds))
	}
	if used := mean * total; used < leastUsed {
		return refused("OSDs use %.0f bytes each, reweighting begins at %d", used, leastUsed)
	}
	slices.SortStableFunc(uses, func(x, y osdUse) int {
		dx, dy := math.Abs(x.use-mean), math.Abs(y.use-mean)
		switch {
		case dx > dy:
			return -1
		case dx < dy:
			return 1
		}
		return 0
	})
	step := uint32(a.MaxChange * inWeight)
	var words []string
	changed := 0
	weights := slices.Clone(c.osdMap.reweight)
	for _, u := range uses {
		weight := c.osdMap.reweight[u.id]
		if weight == 0 {
			continue
		}
		wanted := weight
		if u.use >= mean*float64(a.Oload)/100 {
			wanted = uint32(mean / u.use * float64(weight))
			if weight > step {
				wanted = max(wanted, weight-step)
			}
		} else if u.use <= mean {
			if u.use > 0 {
				wanted = min(uint32(min(mean/u.use*float64(weight), inWeight)), weight+step)
			}
			wanted = max(min(wanted, inWeight), weight)
		}
		if wanted == weight {
			continue
		}
		weights[u.id] = wanted
		changed++
		words = append(words, fmt.Sprintf("osd.%d %.4f to %.4f", u.id,
			float64(weight)/inWeight, float64(wanted)/inWeight))
		if a.MaxOSDs > 0 && changed >= a.MaxOSDs {
			break
		}
	}
	if changed == 0 {
		return Effect{OK: true, already: true, Message: "no change", Detail: none}
	}
	bytes := c.bytesMovedBy(weights)
	return Effect{OK: true, Message: strings.Join(words, ", "), Detail: map[string]float64{
		"weights_changed": float64(changed), "bytes_moved": bytes,
	}}
}

// bytesMovedBy sets the reweights and returns the number of bytes that get new members.
func (c *Cluster) bytesMovedBy(weights []uint32) float64 {
	m := c.osdMap
	before := slices.Clone(m.upSet)
	copy(m.reweight, weights)
	m.dirty = true
	m.compute()
	bytes := int64(0)
	for pg := range int32(c.cfg.PGs) {
		was := before[int(pg)*m.size : (int(pg)+1)*m.size]
		for _, osd := range m.of(pg) {
			if !contains(was, osd) {
				bytes += c.pgs[pg].bytes
			}
		}
	}
	copy(m.upSet, before) // the epoch with this change is still to come
	m.all = true
	return float64(bytes)
}

type onBalance Cluster

func (h *onBalance) Handle(k *sim.Kernel, _ uint64) {
	c := (*Cluster)(h)
	k.After(sim.Seconds(c.cfg.BalancerEvery), h, 0)
	// Ceph's balancer waits while more than 5 % of the PGs are misplaced.
	if !c.monitor.balancing || float64(c.mover.live) > 0.05*float64(c.cfg.PGs) {
		return
	}
	if c.balance() > 0 {
		c.publish()
	}
}

// balance adds upmap items that equalize the OSDs' numbers of PGs, like the balancer's upmap mode
// (OSDMap::calc_pg_upmaps). It moves PGs from the fullest OSD to the emptiest OSD that may take
// them. It stops when all OSDs are within the allowed deviation or at the maximum number of
// changes, and returns that number.
func (c *Cluster) balance() int {
	m := c.osdMap
	counts := make([]int, len(c.osds))
	byOSD := make([][]int32, len(c.osds))
	total, in := 0, 0
	for pg := range int32(c.cfg.PGs) {
		for _, osd := range m.of(pg) {
			counts[osd]++
			byOSD[osd] = append(byOSD[osd], pg)
			total++
		}
	}
	order := make([]int, 0, len(c.osds))
	for i := range c.osds {
		if m.up[i] && m.reweight[i] > 0 {
			in++
			order = append(order, i)
		}
	}
	if in == 0 {
		return 0
	}
	mean := float64(total) / float64(in)
	changes := 0
	for changes < c.cfg.BalancerMoves {
		slices.SortStableFunc(order, func(x, y int) int { return counts[x] - counts[y] })
		full, empty := order[len(order)-1], order[0]
		allowed := float64(c.cfg.BalancerDeviation)
		if float64(counts[full])-mean <= allowed && mean-float64(counts[empty]) <= allowed {
			break
		}
		pg, to := c.relief(full, order, counts, byOSD[full])
		if pg == none {
			break
		}
		m.items[pg] = append(m.items[pg], [2]int32{int32(full), to})
		c.pin(pg)
		counts[full]--
		counts[to]++
		byOSD[full] = slices.DeleteFunc(byOSD[full], func(other int32) bool { return other == pg })
		byOSD[to] = append(byOSD[to], pg)
		changes++
	}
	return changes
}

// relief finds a PG of an OSD, and the emptiest OSD that can take it.
func (c *Cluster) relief(full int, order, counts []int, pgs []int32) (int32, int32) {
	for _, to := range order {
		if counts[to]+1 >= counts[full] {
			break
		}
		for _, pg := range pgs {
			_, whole := c.osdMap.upmap[pg]
			if !whole && !contains(c.osdMap.of(pg), int32(to)) && !c.itemTo(pg, int32(to)) {
				return pg, int32(to)
			}
		}
	}
	return none, none
}

func (c *Cluster) itemTo(pg, to int32) bool {
	return slices.ContainsFunc(c.osdMap.items[pg], func(i [2]int32) bool { return i[1] == to })
}
