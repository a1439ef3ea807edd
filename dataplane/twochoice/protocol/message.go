// Package protocol is the two-choice scheduler's protocol (Dai et al., "Two-Choice Randomized Dynamic
// I/O Scheduler for Object Storage Systems", SC 2014, sections IV and V): what clients and agents say
// to each other, and the state machines that say it.
//
// The machines are pure: no clock, no I/O, no goroutine, no randomness of their own. A message, the
// end of a disk operation or a time-out goes in; messages and disk operations come out. The object
// server (dataplane/twochoice/server) drives them on sockets and files, the fault simulation
// (dataplane/twochoice/faults) on virtual time: the same code. What a reader may see is written down
// in docs/twochoice-consistency.md.
//
// Data are written out of place: every write is a fragment, never changed, that is named by the
// write's identity. The object's home agent alone orders writes, by making a record durable.
package protocol

import "fmt"

// Version of the protocol. Peers of another version are refused by name.
const Version = 2

// Limits of what an agent accepts; longer is refused, never cut.
const (
	MaxName    = 255       // bytes of an object's name
	MaxData    = 64 << 20  // bytes of one write or read
	MaxOffset  = 1<<63 - 1 // an object's end
	MaxLoads   = 4096      // loads told in one message
	MaxTargets = 2         // copies of a fragment
	MaxPieces  = 1 << 16   // pieces of one answer
)

// Node is an agent, by its number from 0.
type Node uint32

// WriteID names a write for good: the client's number, which no two client processes share, and a
// count from 1. The fragment that holds its bytes has the same name.
type WriteID struct{ Client, Seq uint64 }

func (w WriteID) String() string { return fmt.Sprintf("%016x.%d", w.Client, w.Seq) }

// Kind tells messages apart.
type Kind uint8

// The messages, requests before their answers. Call is the requester's number for the exchange;
// the answer repeats it.
const (
	// Hello opens a connection: Version, Node whom the client means to reach.
	Hello Kind = iota + 1
	// Welcome accepts it: Version, Node, Epoch.
	Welcome
	// Probe asks for the load before a write of Size bytes.
	Probe
	// ProbeReply: Loads, the answering node's own first, then what it has cached.
	ProbeReply
	// Decide tells a probed node that it was not chosen: Ticket of what it preassigned (section III.C),
	// and Loads of other nodes (collaborative probe, section III.B).
	Decide
	// Put stores a fragment: Object, Write, From, To, Data, Node; Ticket and Loads as in Decide. With
	// Register the node, which is the home, orders the write too as soon as the fragment is durable.
	Put
	// PutReply: the fragment is durable.
	PutReply
	// Register orders a write whose fragment is durable on Targets: Object, Write, From, To, Low.
	Register
	// RegisterReply: the write is durable and readable at Stamp.
	RegisterReply
	// Query asks the home where a range is.
	Query
	// QueryReply: Pieces in order and without gaps, as of Stamp; Epoch and Gen for reads of the base.
	QueryReply
	// Get reads From to To of fragment Write. With Register a maintainer asks: only if the node is idle.
	Get
	// GetBase reads From to To of the base; Epoch and Gen are those of the QueryReply.
	GetBase
	// Data answers both.
	Data
	// Drop: the home needs fragment Write no longer.
	Drop
	// Fence asks the home whether it needs fragment Write; if it never was ordered it never will be.
	Fence
	// FenceReply: Needed.
	FenceReply
	// Status asks what an agent has.
	Status
	// StatusReply: Data are AgentStats as JSON.
	StatusReply
	// Report asks for the fragments whose home is Node, behind Write in the order of their names; Epoch
	// is the home's.
	Report
	// ReportReply: Pieces; Needed where there are more. Epoch and Write are those of the question.
	ReportReply
	kinds
)

var kindNames = [kinds]string{"?", "hello", "welcome", "probe", "probe-reply", "decide", "put", "put-reply",
	"register", "register-reply", "query", "query-reply", "get", "get-base", "data", "drop", "fence",
	"fence-reply", "status", "status-reply", "report", "report-reply"}

func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Code is why a request was refused.
type Code uint8

// The codes.
const (
	OK Code = iota
	// Full: no room for the fragment or the record; nothing was done.
	Full
	// Gone: the fragment is not here (any more): ask the home again.
	Gone
	// Changed: the base was written since the query: ask the home again.
	Changed
	// Fenced: this write was given up and its fragment removed: write anew under another name.
	Fenced
	// Refused: the request is wrong; Text is one sentence. Asking again is no use.
	Refused
	// Busy: a maintainer asked a node that is not idle, or the node has no memory for the request now.
	// Nothing was done.
	Busy
	// Failed: the node's disk failed it, or holds what it did not write.
	Failed
)

// Load is a node's load as its detector sees it (section V.D): what a twochoice.Reading says.
type Load struct {
	Node     Node
	InFlight uint32
	Load     float64
	Latency  uint64 // nanoseconds that a write is expected to take, 0: not known
	Age      uint64 // nanoseconds since it was read
	Ticket   uint64 // of what was preassigned, 0: nothing
}

// Piece is where part of a range is: the fragment of Write on Targets, or, without targets, the home's
// base. The fragment's bytes begin at offset Origin of the object.
type Piece struct {
	From, To uint64
	Write    WriteID
	Origin   uint64
	Stamp    uint64
	Targets  []Node
}

// Message is any message; which fields count is said at its Kind. Ranges are half open: From <= x < To.
// Data and the slices belong to the receiver and are never changed after sending.
type Message struct {
	Kind     Kind
	Call     uint64
	Version  uint32
	Node     Node // Hello, Welcome: the agent; Put: the object's home
	Epoch    uint64
	Object   string
	Write    WriteID
	From, To uint64
	Targets  []Node
	Register bool
	Needed   bool // FenceReply
	Low      uint64
	Stamp    uint64
	Gen      uint64
	Ticket   uint64
	Size     uint64 // Probe: bytes to be written; QueryReply: the object's size
	Loads    []Load
	Pieces   []Piece
	Data     []byte
	Code     Code
	Text     string
}

// Err is the refusal in an answer, nil if there is none.
func (m *Message) Err() error {
	if m.Code == OK {
		return nil
	}
	return &Error{m.Code, m.Text}
}

// Error is a refusal: its text is one sentence.
type Error struct {
	Code Code
	Text string
}

func (e *Error) Error() string { return e.Text }

// Peer is an end of a conversation as its driver numbers it. Agents are their node's number; clients,
// and agents that asked us, have numbers from FirstClient on.
type Peer uint64

// FirstClient is the lowest number of a peer that is not an agent.
const FirstClient Peer = 1 << 32

// Send is a message that goes out.
type Send struct {
	To Peer
	Message
}
