package twochoice

import (
	"slices"
	"time"
)

// span is a range of an object that belongs to one entry.
type span struct {
	start, end uint64
	slot       uint32 // slot of the entry
}

// leafSize is the maximum number of spans in a leaf. It keeps both leaves and the list of leaves
// short: a change moves a leaf, a split moves the list.
const leafSize = 128

// spans holds disjoint, ordered spans in leaves of up to leafSize. A search is two binary searches.
// A change moves part of a leaf, and sometimes part of the list of leaves.
type spans struct {
	leaves [][]span
	firsts []uint64 // starts of the leaves' first spans
	count  int
}

// place is the position of a span.
type place struct{ leaf, index int }

// locate returns the first span that ends after a byte; past the last leaf if there is none.
func (s *spans) locate(at uint64) place {
	low, high := 0, len(s.firsts)
	for low < high {
		middle := int(uint(low+high) / 2)
		if s.firsts[middle] <= at {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low == 0 {
		return place{}
	}
	leaf := s.leaves[low-1]
	first, last := 0, len(leaf)
	for first < last {
		middle := int(uint(first+last) / 2)
		if leaf[middle].end > at {
			last = middle
		} else {
			first = middle + 1
		}
	}
	if first == len(leaf) {
		return place{low, 0}
	}
	return place{low - 1, first}
}

// at returns the span at a place, or nil past the last.
func (s *spans) at(p place) *span {
	if p.leaf >= len(s.leaves) {
		return nil
	}
	return &s.leaves[p.leaf][p.index]
}

// after returns the next place.
func (s *spans) after(p place) place {
	if p.index+1 < len(s.leaves[p.leaf]) {
		return place{p.leaf, p.index + 1}
	}
	return place{p.leaf + 1, 0}
}

// splice replaces `gone` spans, from one place up to another, with up to three new spans.
func (s *spans) splice(from, to place, gone int, by []span) {
	s.count += len(by) - gone
	if len(s.leaves) == 0 {
		if len(by) > 0 {
			s.leaves = append(s.leaves, append([]span(nil), by...))
			s.firsts = append(s.firsts, by[0].start)
		}
		return
	}
	from, to = s.within(from), s.within(to)
	if from.leaf == to.leaf {
		s.leaves[from.leaf] = slices.Replace(s.leaves[from.leaf], from.index, to.index, by...)
	} else {
		s.leaves[from.leaf] = append(s.leaves[from.leaf][:from.index], by...)
		s.leaves[to.leaf] = slices.Delete(s.leaves[to.leaf], 0, to.index)
		s.remove(from.leaf+1, to.leaf)
		s.balance(from.leaf + 1)
	}
	s.balance(from.leaf)
}

// within maps the first place of a leaf to the end of the previous leaf.
func (s *spans) within(p place) place {
	if p.index == 0 && p.leaf > 0 {
		return place{p.leaf - 1, len(s.leaves[p.leaf-1])}
	}
	return p
}

// remove deletes leaves.
func (s *spans) remove(from, to int) {
	s.leaves = slices.Delete(s.leaves, from, to)
	s.firsts = slices.Delete(s.firsts, from, to)
}

// balance removes an empty leaf, splits a full leaf, and joins a nearly empty leaf with a neighbour
// that has room. Memory thus stays proportional to the contents.
func (s *spans) balance(i int) {
	leaf := s.leaves[i]
	switch {
	case len(leaf) == 0:
		s.remove(i, i+1)
		return
	case len(leaf) > leafSize-3: // a splice adds up to two, and must not grow the leaf
		half := len(leaf) / 2
		right := append(make([]span, 0, leafSize), leaf[half:]...)
		s.leaves = slices.Insert(s.leaves, i+1, right)
		s.firsts = slices.Insert(s.firsts, i+1, right[0].start)
		s.leaves[i] = leaf[:half]
	case len(leaf) < leafSize/4:
		if i+1 < len(s.leaves) && len(leaf)+len(s.leaves[i+1]) < leafSize*3/4 {
			s.join(i)
		} else if i > 0 && len(leaf)+len(s.leaves[i-1]) < leafSize*3/4 {
			s.join(i - 1)
			i--
		}
	}
	s.firsts[i] = s.leaves[i][0].start
}

func (s *spans) join(i int) {
	s.leaves[i] = append(s.leaves[i], s.leaves[i+1]...)
	s.remove(i+1, i+2)
}

// entry is the stored form of a live entry: 56 bytes without pointers.
type entry struct {
	start, end uint64
	receipt    Receipt
	fragment   uint64
	time       time.Duration
	server     Server
	object     uint32
	pieces     uint32 // number of spans that show the entry
}

const chunkSize = 1024

// arena stores entries at fixed places in chunks and reuses free slots.
type arena struct {
	chunks []*[chunkSize]entry
	free   []uint32
	used   uint32 // slots ever allocated
	live   int
}

func (a *arena) at(slot uint32) *entry { return &a.chunks[slot/chunkSize][slot%chunkSize] }

func (a *arena) add(e entry) uint32 {
	a.live++
	var slot uint32
	if n := len(a.free); n > 0 {
		slot = a.free[n-1]
		a.free = a.free[:n-1]
	} else {
		slot = a.used
		a.used++
		if int(slot/chunkSize) == len(a.chunks) {
			a.chunks = append(a.chunks, new([chunkSize]entry))
		}
	}
	*a.at(slot) = e
	return slot
}

func (a *arena) drop(slot uint32) {
	a.live--
	if a.live == 0 { // free the memory of a burst
		*a = arena{}
		return
	}
	*a.at(slot) = entry{}
	a.free = append(a.free, slot)
}
