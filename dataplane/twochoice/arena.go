package twochoice

import "time"

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
