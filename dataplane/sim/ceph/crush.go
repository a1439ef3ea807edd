package ceph

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// CRUSH as in Ceph since Jewel (tunables chooseleaf_descend_once, chooseleaf_vary_r and
// chooseleaf_stable 1, choose_total_tries 50; straw2 buckets): a descent from the root to distinct
// hosts, with one OSD on each. Weil et al., "CRUSH: controlled, scalable, decentralized placement
// of replicated data", SC 2006.

const (
	chooseTries = 51 // choose_total_tries is one less
	none        = int32(-1)

	// inWeight is a reweight of 1, and maxAffinity a primary affinity of 1: 16-bit fractions.
	inWeight    = 0x10000
	maxAffinity = 0x10000
)

// bucket is an inner node of the hierarchy: straw2, the item with the longest straw wins.
type bucket struct {
	host    bool // of OSDs
	items   []int32
	weights []uint32 // 16.16 fixed point, as in CRUSH
	uniform bool     // equal weights: the largest hash is the longest straw
}

// crushMap is the hierarchy: root, racks if there are many hosts, hosts, OSDs.
type crushMap struct{ buckets []*bucket } // by -1-id

// newCrush builds a root over hosts with one OSD each and equal weights. More than rackSize hosts
// are grouped into racks of that size (0: never), because each choice draws a straw for every item
// of a bucket. hosts are the ids of the OSDs' hosts in the order of addition.
func newCrush(hosts []int32, osds []int32, rackSize int, weight uint32) *crushMap {
	m := &crushMap{}
	for i, host := range hosts {
		m.add(host, true, []int32{osds[i]}, []uint32{weight})
	}
	children, weights := hosts, make([]uint32, len(hosts))
	for i := range weights {
		weights[i] = weight
	}
	if rackSize > 0 && len(hosts) > rackSize {
		children, weights = m.rack(hosts, rackSize, weight)
	}
	m.add(-1, false, children, weights)
	return m
}

// hostIDs returns Ceph's ids of hosts added one after the other: the root has -1.
func hostIDs(count int) []int32 {
	ids := make([]int32, count)
	for i := range ids {
		ids[i] = int32(-2 - i)
	}
	return ids
}

func (m *crushMap) rack(hosts []int32, size int, weight uint32) ([]int32, []uint32) {
	count := (len(hosts) + size - 1) / size
	racks, weights := make([]int32, count), make([]uint32, count)
	for i := range racks {
		// Consecutive hosts are in different racks, and rack sizes differ by at most one host.
		var members []int32
		for j := i; j < len(hosts); j += count {
			members = append(members, hosts[j])
		}
		racks[i] = int32(-2 - len(hosts) - i)
		each := make([]uint32, len(members))
		for j := range each {
			each[j] = weight
		}
		weights[i] = weight * uint32(len(members))
		m.add(racks[i], false, members, each)
	}
	return racks, weights
}

func (m *crushMap) add(id int32, host bool, items []int32, weights []uint32) {
	uniform := true
	for _, w := range weights {
		uniform = uniform && w == weights[0] && w > 0
	}
	if missing := int(-id) - len(m.buckets); missing > 0 {
		m.buckets = append(m.buckets, make([]*bucket, missing)...)
	}
	m.buckets[-1-id] = &bucket{host, items, weights, uniform}
}

func (m *crushMap) at(id int32) *bucket { return m.buckets[-1-id] }

// choose is bucket_straw2_choose. With equal weights the logarithm keeps the order of hashes.
func (b *bucket) choose(x, r uint32) int32 {
	best := b.items[0]
	if b.uniform {
		high := int64(-1)
		for _, item := range b.items {
			if u := int64(hash3(x, uint32(item), r) & 0xffff); u > high {
				high, best = u, item
			}
		}
		return best
	}
	high := int64(0)
	for i, item := range b.items {
		draw := int64(-1 << 63)
		if w := b.weights[i]; w > 0 {
			draw = logOf(hash3(x, uint32(item), r)&0xffff) / int64(w)
		}
		if i == 0 || draw > high {
			high, best = draw, item
		}
	}
	return best
}

// place is crush_do_rule of "take default, chooseleaf firstn 0 type host, emit". It puts OSDs of
// `size` distinct hosts into out, fewer if it gives up. weights are the OSDs' reweights.
func (m *crushMap) place(x uint32, size int, weights []uint32, out []int32) []int32 {
	var hosts [maxSize]int32
	out = out[:0]
	root := m.at(-1)
	for rep := range size {
		for failed := range chooseTries {
			r := uint32(rep + failed)
			item := root.choose(x, r)
			for !m.at(item).host {
				item = m.at(item).choose(x, r)
			}
			if slices.Contains(hosts[:len(out)], item) {
				continue
			}
			osd := m.at(item).choose(x, r) // stable, vary_r 1: the leaf's own number is r
			if slices.Contains(out, osd) || isOut(weights[osd], x, osd) {
				continue
			}
			hosts[len(out)] = item
			out = append(out, osd)
			break
		}
	}
	return out
}

// isOut rejects an OSD with a reweight below 1 for the same share of inputs each time.
func isOut(weight, x uint32, osd int32) bool {
	switch {
	case weight >= inWeight:
		return false
	case weight == 0:
		return true
	}
	return hash2(x, uint32(osd))&0xffff >= weight
}

// logTable holds 2^44 (log2(u+1) - 16) for a 16-bit u: Ceph's crush_ln, computed by squaring
// integers instead of a lookup. (Ceph's own table has errors of up to 1e-5 of a bit, which can
// change a draw among unequal weights in about one of 10^5 cases.)
var logTable [1 << 16]int64

func init() {
	for u := range logTable {
		logTable[u] = log2Fixed(uint64(u)+1) - 16<<44
	}
}

func logOf(u uint32) int64 { return logTable[u] }

// log2Fixed returns 2^44 log2(v), v from 1 to 2^16.
func log2Fixed(v uint64) int64 {
	whole := bits.Len64(v) - 1
	result := int64(whole) << 44
	x := v << (62 - whole) // 1 <= x < 2 with 62 fractional bits
	for bit := 43; bit >= 0; bit-- {
		high, low := bits.Mul64(x, x) // 124 fractional bits
		x = high<<2 | low>>62
		if x>>63 != 0 { // 2 or more
			x >>= 1
			result |= 1 << bit
		}
	}
	return result
}

// Ceph places data with Robert Jenkins' 1996 mixing function ("rjenkins1"): over integers for CRUSH
// and primary affinity, over an object's name for its placement group. The constants are Ceph's,
// because they are part of every cluster's placement.
const (
	hashSeed = 1315423911
	hashX    = 231232
	hashY    = 1232
	golden   = 0x9e3779b9
)

// mix is the 96-bit mix.
func mix(a, b, c uint32) (uint32, uint32, uint32) {
	a = (a - b - c) ^ c>>13
	b = (b - c - a) ^ a<<8
	c = (c - a - b) ^ b>>13
	a = (a - b - c) ^ c>>12
	b = (b - c - a) ^ a<<16
	c = (c - a - b) ^ b>>5
	a = (a - b - c) ^ c>>3
	b = (b - c - a) ^ a<<10
	c = (c - a - b) ^ b>>15
	return a, b, c
}

// hash2 is crush_hash32_2.
func hash2(a, b uint32) uint32 {
	a, b, h := mix(a, b, hashSeed^a^b)
	_, _, h = mix(hashX, a, h)
	_, _, h = mix(b, hashY, h)
	return h
}

// hash3 is crush_hash32_3.
func hash3(a, b, c uint32) uint32 {
	a, b, h := mix(a, b, hashSeed^a^b^c)
	c, x, h := mix(c, hashX, h)
	y, _, h := mix(hashY, a, h)
	_, _, h = mix(b, x, h)
	_, _, h = mix(y, c, h)
	return h
}

// hashName is ceph_str_hash_rjenkins, the hash of an object's name.
func hashName(name []byte) uint32 {
	a, b, c := uint32(golden), uint32(golden), uint32(0)
	rest := name
	for len(rest) >= 12 {
		a += binary.LittleEndian.Uint32(rest)
		b += binary.LittleEndian.Uint32(rest[4:])
		c += binary.LittleEndian.Uint32(rest[8:])
		a, b, c = mix(a, b, c)
		rest = rest[12:]
	}
	// The remaining bytes fill the three words; the lowest byte of c is reserved for the length.
	var tail [12]byte
	copy(tail[:8], rest)
	if len(rest) > 8 {
		copy(tail[9:], rest[8:])
	}
	a += binary.LittleEndian.Uint32(tail[:])
	b += binary.LittleEndian.Uint32(tail[4:])
	c += uint32(len(name)) + binary.LittleEndian.Uint32(tail[8:])
	_, _, c = mix(a, b, c)
	return c
}

// stableMod folds a hash into n groups so that few members move when n grows (ceph_stable_mod).
func stableMod(x, n uint32) uint32 {
	mask := uint32(1)
	for mask < n {
		mask <<= 1
	}
	mask--
	if x&mask < n {
		return x & mask
	}
	return x & (mask >> 1)
}
