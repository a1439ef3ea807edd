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
//	probes, err := scheduler.Probes(now, writes, nil) // servers to probe; none: place at once
//	readings := ...                                   // readings[i] answers probes[i]
//	placed, err := scheduler.Place(now, writes, probes, readings, cached, nil)
//
// On a server: Detector (section V.D) answers probes and tracks load in flight, Table (V.B) is the
// redirect table, Maintainer (V.C) moves data home. Package redirectlog keeps a table on disk.
package twochoice

import (
	"fmt"
	"math/bits"
	"time"
)

// Server is the number of an object server (an OSD), not below 0.
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

// Servers holds a cluster's servers and their up/down state. Schedulers of one cluster share it.
type Servers struct {
	all   []Server
	up    []Server
	place []int32 // by server: index in up, or down or unknown
}

const (
	down    = -1
	unknown = -2
)

// maxServer limits server numbers, because tables are indexed by them.
const maxServer = 1 << 24

// NewServers returns a cluster of these servers, all up. A number that is negative, above 2^24 or
// duplicate is an *UnknownServerError or a *TwiceError.
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

// Len returns the number of servers.
func (s *Servers) Len() int { return len(s.all) }

// UpLen returns the number of servers that are up.
func (s *Servers) UpLen() int { return len(s.up) }

// All returns all servers in their original order; the caller must not change the slice.
func (s *Servers) All() []Server { return s.all }

// Known reports whether a server is in the cluster.
func (s *Servers) Known(server Server) bool {
	return server >= 0 && int(server) < len(s.place) && s.place[server] != unknown
}

// Up reports whether a server is known and up.
func (s *Servers) Up(server Server) bool {
	return server >= 0 && int(server) < len(s.place) && s.place[server] >= 0
}

// Check returns an *UnknownServerError if a server is not in the cluster.
func (s *Servers) Check(server Server) error {
	if !s.Known(server) {
		return &UnknownServerError{Server: server, Servers: len(s.all)}
	}
	return nil
}

// SetUp marks a server up or down; schedulers choose no server that is down. It returns an
// *UnknownServerError if there is no such server.
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

// Draw returns a uniformly random server that is up, or NoServer if there is none.
func (s *Servers) Draw(random Random) Server {
	if len(s.up) == 0 {
		return NoServer
	}
	return s.up[below(random, len(s.up))]
}

// DrawOther returns a random server that is up and is not `than`, or NoServer if there is none.
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

// Stripe returns the home of stripe number `index` of a file that starts at place `start`: round
// robin (figure 3's fixed placement). The cluster must have at least one server.
func (s *Servers) Stripe(start, index uint64) Server {
	n := uint64(len(s.all))
	return s.all[(start%n+index%n)%n]
}

// UnknownServerError reports a server (OSD) that the cluster does not have.
type UnknownServerError struct {
	Server  Server
	Servers int // number of servers in the cluster
}

func (e *UnknownServerError) Error() string {
	return fmt.Sprintf("OSD %d is not one of the cluster's %d; name one of the OSDs that the cluster "+
		"map lists", e.Server, e.Servers)
}

// TwiceError reports a server that was named twice.
type TwiceError struct{ Server Server }

func (e *TwiceError) Error() string {
	return fmt.Sprintf("OSD %d is there twice; name each OSD once", e.Server)
}

// RangeError reports a range that is empty, runs backwards or exceeds its object.
type RangeError struct {
	Object Object
	Range  Range
	Size   uint64 // maximum size of the object in bytes
}

func (e *RangeError) Error() string {
	if e.Range.Start >= e.Range.End {
		return fmt.Sprintf("range [%d, %d) of object %q holds no byte; its end must be above its start",
			e.Range.Start, e.Range.End, e.Object)
	}
	return fmt.Sprintf("range [%d, %d) goes beyond object %q, which has at most %d bytes",
		e.Range.Start, e.Range.End, e.Object, e.Size)
}

// ClockError reports a clock that went back.
type ClockError struct{ Now, Last time.Duration }

func (e *ClockError) Error() string {
	return fmt.Sprintf("the clock went back by %v (from %v to %v); nothing was changed: set the clock "+
		"right, or wait until it has caught up", e.Last-e.Now, e.Last, e.Now)
}

// ReceiptError reports a record that cannot follow the table's contents: a past record that is not
// a maintainer's, or a return as of a receipt that was not yet given.
type ReceiptError struct {
	Receipt Receipt // the record's
	Last    Receipt // the table's
	Why     string
}

func (e *ReceiptError) Error() string {
	return fmt.Sprintf("receipt %d does not follow receipt %d: %s", e.Receipt, e.Last, e.Why)
}

// NameError reports an object name that cannot be recorded.
type NameError struct{ Length int }

func (e *NameError) Error() string {
	return fmt.Sprintf("an object's name has %d bytes; allowed are 1 to %d", e.Length, MaxName)
}

// ParameterError reports a parameter value that is not allowed.
type ParameterError struct{ Name, Value, Allowed string }

func (e *ParameterError) Error() string {
	return fmt.Sprintf("%s is %s; allowed is %s", e.Name, e.Value, e.Allowed)
}
