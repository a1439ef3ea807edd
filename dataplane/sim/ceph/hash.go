package ceph

import "encoding/binary"

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
