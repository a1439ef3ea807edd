package twochoice

import (
	"fmt"
	"math"
	"time"
)

// Object is the name of an object; 1 to MaxName bytes.
type Object string

// MaxName is the maximum length of an object's name in bytes.
const MaxName = 4096

// MaxObject is the maximum size of an object in bytes (section V.B).
const MaxObject uint64 = math.MaxUint64

// Range is a range of bytes, from Start up to but not including End.
type Range struct{ Start, End uint64 }

// Len returns the number of bytes in the range.
func (r Range) Len() uint64 { return r.End - r.Start }

// Empty reports whether the range has no bytes.
func (r Range) Empty() bool { return r.Start >= r.End }

// Overlaps reports whether two ranges have a byte in common.
func (r Range) Overlaps(o Range) bool { return max(r.Start, o.Start) < min(r.End, o.End) }

// Within returns the intersection of r and o; empty if they do not overlap.
func (r Range) Within(o Range) Range {
	out := Range{max(r.Start, o.Start), min(r.End, o.End)}
	if out.Start > out.End {
		out.End = out.Start
	}
	return out
}

func (r Range) String() string { return fmt.Sprintf("[%d, %d)", r.Start, r.End) }

// Receipt numbers the records of a table from 1 up: the order of its log. 0 precedes all.
type Receipt uint64

// Location is the place of bytes: a server and a fragment on it. A fragment holds one write and is
// never rewritten. An unfinished write therefore cannot harm a finished one, and a fragment that no
// entry names can be removed. The fragment at home is 0.
type Location struct {
	Server   Server
	Fragment uint64
}

// Entry is one redirected write: bytes Range of Object are at Location. Byte Range.Start is at
// offset 0 of the fragment.
type Entry struct {
	Object   Object
	Range    Range
	Location Location
	Receipt  Receipt
	Time     time.Duration // time of receipt
}

// Piece is a part of a queried range. At home the offset is the offset in the object.
type Piece struct {
	Range    Range
	Location Location
	Offset   uint64  // of Range.Start in the fragment, or in the object at home
	Receipt  Receipt // of the entry, 0 at home
}

// Kind is the kind of a record.
type Kind uint8

// The kinds of records.
const (
	// Redirected: the range was written to Location (a create of section V.B).
	Redirected Kind = 1
	// Home: the range was written at home. This shadows earlier redirections.
	Home Kind = 2
	// Returned: the range was brought home (a delete of section V.B). Bytes received up to AsOf are
	// at home; later bytes stay in place (the rule of figure 10).
	Returned Kind = 3
	// Held: Range is a still visible part of the entry at Origin. Used only in table snapshots.
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

// Record is one change of a table, in the form its log keeps.
type Record struct {
	Kind     Kind
	Object   Object
	Range    Range
	Receipt  Receipt       // its own
	Time     time.Duration // time of receipt
	Location Location      // Redirected and Held
	AsOf     Receipt       // Returned
	Origin   Range         // Held: the range of the whole entry
}

// Entry returns the entry of a Redirected or Held record.
func (r Record) Entry() Entry {
	e := Entry{Object: r.Object, Range: r.Range, Location: r.Location, Receipt: r.Receipt, Time: r.Time}
	if r.Kind == Held {
		e.Range = r.Origin
	}
	return e
}
