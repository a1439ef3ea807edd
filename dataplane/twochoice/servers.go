// Package twochoice is the two-choice randomized I/O scheduler (Dai, Chen, Kimpe and Ross, SC 2014)
// and its redirect table. A write goes to the less loaded of two object servers. The object's home
// server remembers the location of the bytes, and brings them home when it is idle.
//
// The package has no clock and does no I/O: times and random numbers come in, decisions come out. A
// simulator drives it on virtual time, and an agent on a real node on its own clock, with the same
// code. Nothing in the package is safe for concurrent use.
//
// On the client's side (sections III and V.A, figure 8):
//
//	probes := scheduler.Probes(writes, nil) // servers to probe; none: place at once
//	readings := ...                         // readings[i] answers probes[i]
//	placed := scheduler.Place(now, writes, probes, readings, cached, nil)
//
// On a server: Detector (section V.D) answers probes and tracks load in flight, Table (V.B) is the
// redirect table, Maintainer (V.C) moves data home. Package redirectlog keeps a table on disk.
package twochoice

import "math/bits"

// Server is the number of an object server (an OSD), from 0.
type Server int32

// NoServer means no server.
const NoServer Server = -1

// Random is a source of random numbers, uniform over all values, such as *sim.Stream or *rand.PCG.
type Random interface{ Uint64() uint64 }

// below returns a uniform number in 0 <= i < n; n is positive.
func below(random Random, n int) int {
	// Multiply and shift. The low word detects the few draws that would make some results more
	// likely than others.
	high, low := bits.Mul64(random.Uint64(), uint64(n))
	if low < uint64(n) {
		for least := -uint64(n) % uint64(n); low < least; {
			high, low = bits.Mul64(random.Uint64(), uint64(n))
		}
	}
	return int(high)
}

// Servers is a cluster's number of servers.
type Servers int

// Stripe returns the home of stripe number `index` of a file that starts at place `start`: round
// robin (figure 3's fixed placement).
func (n Servers) Stripe(start, index uint64) Server {
	return Server((start%uint64(n) + index%uint64(n)) % uint64(n))
}

func (n Servers) draw(random Random) Server { return Server(below(random, int(n))) }

// drawOther returns a random server other than `than`, or NoServer if there is none.
func (n Servers) drawOther(random Random, than Server) Server {
	if n == 1 {
		return NoServer
	}
	server := Server(below(random, int(n)-1))
	if server >= than {
		server++
	}
	return server
}
