package ceph

import "slices"

// maxSize is the maximum number of replicas of a pool.
const maxSize = 10

// osdMap is one pool's placement: the monitors' map and the sets that follow from it.
type osdMap struct {
	epoch int
	pgNum int
	size  int
	crush *crushMap

	reweight []uint32 // by OSD, 16.16
	affinity []uint32
	up       []bool

	upmap map[int32][]int32    // pg-upmap: the whole set
	items map[int32][][2]int32 // pg-upmap-items: from, to
	leads map[int32]int32      // pg-upmap-primary

	seeds []uint32 // by PG: Ceph's pps, the hash input of CRUSH and affinity
	raw   []int32  // CRUSH's result, size entries per PG, none at the end
	upSet []int32  // with upmaps, down OSDs and affinity; the primary first
	dirty bool     // raw is older than the weights

	// Other changes in the next epoch: all up sets, those with an OSD of changed affinity, those of
	// single PGs.
	all       bool
	turned    []bool // by OSD
	anyTurned bool
	repinned  []int32 // PGs, in the order of the changes

	scratch [maxSize]int32
}

// newOSDMap returns the map of a pool; its number is part of every PG's hash.
func newOSDMap(crush *crushMap, osds, pool, pgNum, size int) *osdMap {
	m := &osdMap{
		epoch: 1, pgNum: pgNum, size: size, crush: crush,
		reweight: make([]uint32, osds), affinity: make([]uint32, osds), up: make([]bool, osds),
		upmap: map[int32][]int32{}, items: map[int32][][2]int32{},
		leads: map[int32]int32{},
		seeds: make([]uint32, pgNum), raw: make([]int32, pgNum*size),
		upSet: make([]int32, pgNum*size), dirty: true,
		turned: make([]bool, osds),
	}
	for i := range osds {
		m.reweight[i], m.affinity[i], m.up[i] = inWeight, maxAffinity, true
	}
	for pg := range m.seeds {
		m.seeds[pg] = hash2(stableMod(uint32(pg), uint32(pgNum)), uint32(pool))
	}
	m.compute()
	m.all = false
	return m
}

// of returns a PG's up set.
func (m *osdMap) of(pg int32) []int32 { return trim(m.upSet[int(pg)*m.size : (int(pg)+1)*m.size]) }

// pgOf returns the placement group of an object.
func (m *osdMap) pgOf(name []byte) int32 { return int32(stableMod(hashName(name), uint32(m.pgNum))) }

func (m *osdMap) pinned(pg int32) bool {
	_, whole := m.upmap[pg]
	_, parts := m.items[pg]
	return whole || parts
}

// setAffinity changes an affinity for the next epoch.
func (m *osdMap) setAffinity(osd int, value uint32) {
	m.affinity[osd], m.turned[osd], m.anyTurned = value, true, true
}

// pin records that a PG's upmaps were changed.
func (m *osdMap) pin(pg int32) { m.repinned = append(m.repinned, pg) }

// commit makes a new epoch from the changes and returns the PGs with a different up set.
func (m *osdMap) commit() []int32 {
	m.epoch++
	var changed []int32
	var scratch [maxSize]int32
	m.place()
	for _, pg := range m.touched() {
		up := m.upSet[int(pg)*m.size : (int(pg)+1)*m.size]
		row := scratch[:m.size]
		fill(row, m.upOf(pg))
		if !slices.Equal(row, up) {
			copy(up, row)
			changed = append(changed, pg)
		}
	}
	m.all = false
	clear(m.turned)
	m.anyTurned, m.repinned = false, m.repinned[:0]
	return changed
}

// touched returns the PGs with possibly different up sets in the next epoch, in numerical order.
func (m *osdMap) touched() []int32 {
	if m.all {
		every := make([]int32, m.pgNum)
		for pg := range every {
			every[pg] = int32(pg)
		}
		return every
	}
	some := slices.Clone(m.repinned)
	if m.anyTurned {
		for at, osd := range m.upSet { // in one pass: for a large store this is the slowest part
			if osd != none && m.turned[osd] {
				some = append(some, int32(at/m.size))
			}
		}
	}
	slices.Sort(some)
	return slices.Compact(some)
}

// place runs CRUSH again if the weights were changed.
func (m *osdMap) place() {
	if !m.dirty {
		return
	}
	var scratch [maxSize]int32
	for pg := range int32(m.pgNum) {
		raw := m.raw[int(pg)*m.size : (int(pg)+1)*m.size]
		fill(raw, m.crush.place(m.seeds[pg], m.size, m.reweight, scratch[:]))
	}
	m.dirty, m.all = false, true
}

// compute recomputes all up sets, outside an epoch.
func (m *osdMap) compute() {
	m.place()
	for pg := range int32(m.pgNum) {
		fill(m.upSet[int(pg)*m.size:(int(pg)+1)*m.size], m.upOf(pg))
	}
}

// upOf returns the up set computed from the map; the next call reuses its memory.
func (m *osdMap) upOf(pg int32) []int32 {
	set := append(m.scratch[:0], trim(m.raw[int(pg)*m.size:(int(pg)+1)*m.size])...)
	set = m.applyUpmap(pg, set)
	set = slices.DeleteFunc(set, func(osd int32) bool { return !m.up[osd] })
	m.applyAffinity(m.seeds[pg], set)
	return set
}

// applyUpmap is OSDMap::_apply_upmap. A pg-upmap applies unless a member is out. Then each
// pg-upmap-item applies unless its target is out or already in the set.
func (m *osdMap) applyUpmap(pg int32, set []int32) []int32 {
	if whole, there := m.upmap[pg]; there {
		out := slices.ContainsFunc(whole, func(osd int32) bool { return m.reweight[osd] == 0 })
		if !out {
			set = append(set[:0], whole...)
		}
	}
	for _, item := range m.items[pg] {
		from, to := item[0], item[1]
		if slices.Contains(set, to) || m.reweight[to] == 0 {
			continue
		}
		if at := slices.Index(set, from); at >= 0 {
			set[at] = to
		}
	}
	if lead, there := m.leads[pg]; there && m.reweight[lead] > 0 {
		if at := slices.Index(set, lead); at > 0 {
			set[0], set[at] = set[at], set[0]
		}
	}
	return set
}

// applyAffinity is OSDMap::_apply_primary_affinity. An OSD with an affinity below 1 declines a
// fixed share of its PGs; the first to decline serves if all do.
func (m *osdMap) applyAffinity(seed uint32, set []int32) {
	chosen := -1
	for i, osd := range set {
		a := m.affinity[osd]
		if a >= maxAffinity || hash2(seed, uint32(osd))>>16 < a {
			chosen = i
			break
		}
		if chosen < 0 {
			chosen = i
		}
	}
	if chosen > 0 {
		primary := set[chosen]
		copy(set[1:chosen+1], set[:chosen])
		set[0] = primary
	}
}

// fill copies set and marks the remaining entries as empty.
func fill(into, set []int32) {
	n := copy(into, set)
	for ; n < len(into); n++ {
		into[n] = none
	}
}

// trim removes the empty entries at the end.
func trim(set []int32) []int32 {
	for i, osd := range set {
		if osd == none {
			return set[:i]
		}
	}
	return set
}

// affinityOf turns a primary affinity of 0 to 1 into the map's 16-bit fraction, as the monitor does.
func affinityOf(value float64) uint32 { return uint32(value * maxAffinity) }
