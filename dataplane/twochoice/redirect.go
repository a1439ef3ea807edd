package twochoice

import (
	"fmt"
	"math"
	"time"
)

// Object names an object; 1 to MaxName bytes.
type Object string

// MaxName is how many bytes the name of an object may have.
const MaxName = 4096

// MaxObject is the most bytes that an object may have (section V.B).
const MaxObject uint64 = math.MaxUint64

// Range is the bytes from Start to before End.
type Range struct{ Start, End uint64 }

// Len is how many bytes it holds.
func (r Range) Len() uint64 { return r.End - r.Start }

// Empty says whether it holds none.
func (r Range) Empty() bool { return r.Start >= r.End }

// Overlaps says whether two ranges have a byte in common.
func (r Range) Overlaps(o Range) bool { return max(r.Start, o.Start) < min(r.End, o.End) }

// Within is the part of r that is in o; empty when they have nothing in common.
func (r Range) Within(o Range) Range {
	out := Range{max(r.Start, o.Start), min(r.End, o.End)}
	if out.Start > out.End {
		out.End = out.Start
	}
	return out
}

func (r Range) String() string { return fmt.Sprintf("[%d, %d)", r.Start, r.End) }

// Receipt numbers what a table received, from 1 up: the order of its log. 0 is before everything.
type Receipt uint64

// Location says where bytes are: on a server, there in a fragment of their own. A fragment holds one
// write and is never written again, so that an unfinished write cannot harm a finished one, and a
// fragment that no entry names any more can be removed. At home there is no fragment: 0.
type Location struct {
	Server   Server
	Fragment uint64
}

// Entry is one redirected write: bytes Range of Object are in Location, the byte Range.Start at
// offset 0 of the fragment.
type Entry struct {
	Object   Object
	Range    Range
	Location Location
	Receipt  Receipt
	Time     time.Duration // when it was received
}

// Piece is a part of a range that was queried. At home the offset is that in the object.
type Piece struct {
	Range    Range
	Location Location
	Offset   uint64  // of Range.Start in the fragment, or in the object at home
	Receipt  Receipt // of the entry, 0 at home
}

// Kind says what a record tells.
type Kind uint8

// The kinds of records.
const (
	// Redirected: the range was written to Location (a create of section V.B).
	Redirected Kind = 1
	// Home: the range was written at home. It shadows what was redirected before.
	Home Kind = 2
	// Returned: the range was brought home (a delete of section V.B): what was received up to AsOf is
	// at home, what was received later stays where it is (the rule of figure 10).
	Returned Kind = 3
	// Held: Range is what is still visible of the entry at Origin. Only snapshots of a table have it.
	Held Kind = 4
)

func (k Kind) String() string {
	switch k {
	case Redirected:
		return "redirected"
	case Home:
		return "home"
	case Returned:
		return "returned"
	case Held:
		return "held"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Record is one change of a table, as its log keeps it.
type Record struct {
	Kind     Kind
	Object   Object
	Range    Range
	Receipt  Receipt       // its own
	Time     time.Duration // when it was received
	Location Location      // Redirected and Held
	AsOf     Receipt       // Returned
	Origin   Range         // Held: the range of the whole entry
}

// Entry is the entry of a record that is Redirected or Held.
func (r Record) Entry() Entry {
	e := Entry{Object: r.Object, Range: r.Range, Location: r.Location, Receipt: r.Receipt, Time: r.Time}
	if r.Kind == Held {
		e.Range = r.Origin
	}
	return e
}
