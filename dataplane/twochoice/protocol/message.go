// Package protocol is the two-choice scheduler's protocol (Dai et al., "Two-Choice Randomized
// Dynamic I/O Scheduler for Object Storage Systems", SC 2014, sections IV and V): the messages of
// clients and agents, and their state machines.
//
// The machines are pure: no clock, no I/O, no goroutine, no randomness of their own. Messages,
// completed disk operations and timeouts go in; messages and disk operations come out. The object
// server (dataplane/twochoice/server) drives them on sockets and files, the fault simulation
// (dataplane/twochoice/faults) on virtual time, with the same code. docs/twochoice.md
// specifies what a reader may see.
//
// Data is written out of place: every write is an immutable fragment, named by the write's
// identity. Only the object's home agent orders writes, by making a record durable.
package protocol

import (
	"fmt"
	"strconv"
	"strings"
)

// Version is the protocol version. Peers of another version are refused.
const Version = 3

// Limits of accepted messages; longer messages are refused, never truncated.
const (
	MaxName    = 255       // bytes of an object's name
	MaxData    = 64 << 20  // bytes of one write or read
	MaxOffset  = 1<<63 - 1 // an object's end
	MaxLoads   = 4096      // loads in one message
	MaxTargets = 2         // copies of a fragment
	MaxPieces  = 1 << 16   // pieces of one answer
)

// Node is an agent's number, from 0.
type Node uint32

// WriteID names a write permanently: the client's number, unique to a client process, and a count
// from 1. The fragment with its bytes has the same name.
type WriteID struct{ Client, Seq uint64 }

func (w WriteID) String() string { return fmt.Sprintf("%016x.%d", w.Client, w.Seq) }

// Kind is the type of a message.
type Kind uint8

// The messages, requests before their answers. Call is the requester's number for the exchange;
// the answer repeats it.
const (
	// Hello opens a connection: Version, and Node that the client wants to reach.
	Hello Kind = iota + 1
	// Welcome accepts it: Version, Node, Epoch.
	Welcome
	// Probe asks for the load before a write of Size bytes.
	Probe
	// ProbeReply: Loads, the answering node's own first, then its cached loads.
	ProbeReply
	// Decide informs a node that it was chosen for Size bytes of Write, or with Size 0 that it was
	// not: Ticket of its preassignment (section III.C), 0 if it was not probed for the write, and
	// Loads of other nodes (collaborative probe, section III.B).
	Decide
	// Put stores a fragment: Object, Write, From, To, Data, Node; Ticket as in Decide. With Register
	// the node, which is the home, also orders the write after it is durable.
	Put
	// PutReply: the fragment is durable.
	PutReply
	// Register orders a write with a durable fragment on Targets: Object, Write, From, To, Low.
	Register
	// RegisterReply: the write is durable and readable at Stamp.
	RegisterReply
	// Query asks the home for the location of a range.
	Query
	// QueryReply: Pieces in order and without gaps, as of Stamp; Epoch and Gen for reads of the base.
	QueryReply
	// Get reads From to To of fragment Write. With Register a maintainer asks: only if idle.
	Get
	// GetBase reads From to To of the base; Epoch and Gen are those of the QueryReply.
	GetBase
	// Data answers Get and GetBase.
	Data
	// Drop: the home no longer needs fragment Write.
	Drop
	// Fence asks the home if it needs fragment Write. A write not yet ordered then never will be.
	Fence
	// FenceReply: Needed.
	FenceReply
	// Status asks for an agent's counts.
	Status
	// StatusReply: Data are AgentStats as JSON.
	StatusReply
	// Report asks for the fragments with home Node, after Write in the order of their names; Epoch
	// is the home's.
	Report
	// ReportReply: Pieces; Needed if there are more. Epoch and Write repeat the question's.
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

// Code is the reason of a refusal.
type Code uint8

// The codes.
const (
	OK Code = iota
	// Full: no space for the fragment or the record; nothing was done.
	Full
	// Gone: the fragment is not here (any more). Ask the home again.
	Gone
	// Changed: the base was written since the query. Ask the home again.
	Changed
	// Fenced: the write was given up and its fragment removed. Write again under a new name.
	Fenced
	// Refused: the request is wrong; Text is one sentence. Do not retry.
	Refused
	// Busy: a maintainer asked a node that is not idle, or the node has no memory for the request
	// now. Nothing was done.
	Busy
	// Failed: the node's disk failed, or returned damaged data.
	Failed
)

// Load is a node's load from its detector (section V.D), like a twochoice.Reading.
type Load struct {
	Node     Node
	InFlight uint32
	Load     float64
	Latency  uint64 // expected latency of a write in nanoseconds, 0: unknown
	Age      uint64 // nanoseconds since the reading
	Ticket   uint64 // of the preassignment, 0: none
}

// Piece is the location of a part of a range: the fragment of Write on Targets, or, without
// targets, the home's base. The fragment's bytes begin at offset Origin of the object.
type Piece struct {
	From, To uint64
	Write    WriteID
	Origin   uint64
	Stamp    uint64
	Targets  []Node
}

// Message is any message; its Kind defines the relevant fields. Ranges are half open: From <= x <
// To. Data and the slices belong to the receiver and are never changed after sending.
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
	Size     uint64 // Probe: bytes to write; QueryReply: the object's size
	Loads    []Load
	Pieces   []Piece
	Data     []byte
	Code     Code
	Text     string
}

// Err returns the refusal in an answer, or nil.
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

// Peer is the driver's number of a conversation partner. Agents have their node's number. Clients,
// and agents that connected to us, have numbers from FirstClient on.
type Peer uint64

// FirstClient is the lowest number of a peer that is not an agent.
const FirstClient Peer = 1 << 32

// Send is an outgoing message.
type Send struct {
	To Peer
	Message
}

// HomeOf returns the home of an object on this many agents. Stripe k of a file, the object
// "file/k", is at home k agents after the file's start. A hash of the file's name gives the start
// (round robin from a random start, as in section VI.B). Any other name is a file of one stripe.
func HomeOf(object string, nodes int) Node {
	file, stripe := object, uint64(0)
	if i := strings.LastIndexByte(object, '/'); i >= 0 {
		if k, err := strconv.ParseUint(object[i+1:], 10, 63); err == nil {
			file, stripe = object[:i], k
		}
	}
	hash := uint64(14695981039346656037) // FNV-1a
	for i := range len(file) {
		hash = (hash ^ uint64(file[i])) * 1099511628211
	}
	n := uint64(nodes)
	return Node((hash%n + stripe%n) % n)
}
