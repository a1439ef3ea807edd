// Package twochoice is the two-choice randomized I/O scheduler (Dai, Chen, Kimpe and Ross, SC 2014)
// and its redirect table: a write goes to the less loaded of two object servers, the server where
// the object is at home remembers where the bytes went, and brings them home when it is idle.
//
// The package has no clock and does no I/O: times and random numbers come in, and what is to be done
// comes out. A simulator drives it on virtual time and an agent on a real node on its own: the same
// code. Nothing in it is safe for concurrent use.
//
// On the client's side (sections III and V.A, figure 8):
//
//	probes, err := scheduler.Probes(now, writes, nil) // whom to ask; none: place at once
//	readings := ...                                   // readings[i] answers probes[i]
//	placed, err := scheduler.Place(now, writes, probes, readings, cached, nil)
//
// On a server's: Detector (section V.D) answers probes and knows what is in flight, Table (V.B) is
// the redirect table, Maintainer (V.C) moves data home. Package redirectlog keeps a table on disk.
package twochoice

import (
	"math/bits"
)

// Server names an object server (an OSD): a number of its own, not below 0.
type Server int32

// NoServer is none.
const NoServer Server = -1

// Random is where random numbers come from: uniform over all values. *sim.Stream and *rand.PCG are.
type Random interface{ Uint64() uint64 }

// below is uniform over 0 <= i < n; n is positive.
func below(random Random, n int) int {
	// Multiply and shift; the low word says whether the draw is one of the few that would make some
	// results likelier than others.
	high, low := bits.Mul64(random.Uint64(), uint64(n))
	if low < uint64(n) {
		for least := -uint64(n) % uint64(n); low < least; {
			high, low = bits.Mul64(random.Uint64(), uint64(n))
		}
	}
	return int(high)
}

// Servers are those of a cluster, and which of them are up. Schedulers of one cluster share it.
type Servers struct {
	all   []Server
	up    []Server
	place []int32 // by server: its index in up, or one of those below
}

const (
	down    = -1
	unknown = -2
)

// maxServer bounds a server's number, for the sake of tables by number.
const maxServer = 1 << 24

// NewServers returns a cluster of these servers, all of them up. A number that is negative, above
// 2^24 or there twice is an *UnknownServerError or a *TwiceError.
func NewServers(all []Server) (*Servers, error) {
	s := &Servers{}
	for _, server := range all {
		if server < 0 || server > maxServer {
			return nil, &UnknownServerError{Server: server, Servers: len(all)}
		}
		for int(server) >= len(s.place) {
			s.place = append(s.place, unknown)
		}
		if s.place[server] != unknown {
			return nil, &TwiceError{Server: server}
		}
		s.place[server] = int32(len(s.up))
		s.all, s.up = append(s.all, server), append(s.up, server)
	}
	return s, nil
}

// Numbered returns a cluster of the servers 0 to n-1.
func Numbered(n int) *Servers {
	all := make([]Server, n)
	for i := range all {
		all[i] = Server(i)
	}
	s, err := NewServers(all)
	if err != nil {
		panic(err)
	}
	return s
}

// Len is how many there are, UpLen how many of them are up.
func (s *Servers) Len() int { return len(s.all) }

// UpLen is how many are up.
func (s *Servers) UpLen() int { return len(s.up) }

// All are all servers in the order in which they were given; do not change it.
func (s *Servers) All() []Server { return s.all }

// Known says whether a server is one of the cluster.
func (s *Servers) Known(server Server) bool {
	return server >= 0 && int(server) < len(s.place) && s.place[server] != unknown
}

// Up says whether a server is known and up.
func (s *Servers) Up(server Server) bool {
	return server >= 0 && int(server) < len(s.place) && s.place[server] >= 0
}

// Check returns an *UnknownServerError when a server is not one of the cluster.
func (s *Servers) Check(server Server) error {
	if !s.Known(server) {
		return &UnknownServerError{Server: server, Servers: len(s.all)}
	}
	return nil
}

// SetUp tells that a server is up or down: schedulers choose none that is down. Its answer is an
// *UnknownServerError when there is no such server.
func (s *Servers) SetUp(server Server, up bool) error {
	if err := s.Check(server); err != nil {
		return err
	}
	switch at := s.place[server]; {
	case up && at < 0:
		s.place[server] = int32(len(s.up))
		s.up = append(s.up, server)
	case !up && at >= 0:
		last := s.up[len(s.up)-1]
		s.up[at], s.place[last] = last, at
		s.up = s.up[:len(s.up)-1]
		s.place[server] = down
	}
	return nil
}

// Draw is one of the servers that are up, uniformly; NoServer when there is none.
func (s *Servers) Draw(random Random) Server {
	if len(s.up) == 0 {
		return NoServer
	}
	return s.up[below(random, len(s.up))]
}

// DrawOther is one of those that are up other than one; NoServer when there is none.
func (s *Servers) DrawOther(random Random, than Server) Server {
	if !s.Up(than) {
		return s.Draw(random)
	}
	if len(s.up) == 1 {
		return NoServer
	}
	i := below(random, len(s.up)-1)
	if at := int(s.place[than]); i >= at {
		i++
	}
	return s.up[i]
}

// Stripe is where stripe number `index` of a file is at home that starts at place `start`: round
// robin (figure 3's fixed placement). There is at least one server.
func (s *Servers) Stripe(start, index uint64) Server {
	n := uint64(len(s.all))
	return s.all[(start%n+index%n)%n]
}
