package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"hotbed/dataplane/twochoice"
)

// AgentConfig configures an agent.
type AgentConfig struct {
	Node  Node
	Nodes int
	// Home returns an object's home; every agent and client must use the same function.
	Home func(object string) Node
	// Epoch must differ after each start.
	Epoch uint64
	// Size is the maximum size of an object in bytes.
	Size uint64
	// Copies is 1 or 2; with 2 copies nothing is pulled.
	Copies int
	// CompactAbove is the number of log records that triggers compaction. A snapshot replaces the
	// log only if at most half as long; 0 disables compaction.
	CompactAbove int
	// Patience is the wait for another agent before a pull is given up or a fence is repeated. It
	// is also the rest time for pulls after a disk refused data.
	Patience time.Duration
	// Orphans is the age of a fragment at which the store asks if it is still needed.
	Orphans time.Duration
	// IdleOps is the maximum operations in flight of an idle node; 0 means the paper's value.
	IdleOps int
	// Maintainer limits concurrent pulls and their size.
	Maintainer twochoice.MaintainerParameters
	// Detector is the node's load detector.
	Detector *twochoice.Detector
}

// Agent is the state machine of a node: home of objects, store of fragments, and maintainer. Its
// driver passes in messages and completed disk operations, executes the output of Take, and calls
// Tick regularly. Times never decrease.
type Agent struct {
	config AgentConfig
	now    time.Duration
	failed error

	disk map[uint64]*diskJob // in progress, by number
	op   uint64

	// As a store.
	fragments map[fragmentKey]*held // a fragment known only by its write has no object
	ages      []*held               // in the sweep's order
	// Writes that will come without a ticket, because a remembered load was chosen.
	expected map[WriteID]twochoice.Ticket

	// As a home.
	book    *book
	queue   []*order // next to be written to the log
	writing []*order
	logged  int // records in the log

	compacting bool

	recount *recount // in progress
	notices []string

	// As a maintainer.
	maintainer *twochoice.Maintainer
	pulls      map[uint64]*pull // by number
	pullNumber uint64
	busy       map[Node]time.Duration // until when busy nodes are not asked
	rests      time.Duration          // no pulls before this time, because a disk refused data
	paused     bool

	sends []Send
	ops   []DiskOp
}

// NewAgent starts an agent from its disk: the store's fragments, and the log's records in order.
// The error names the invalid record or parameter of the maintainer.
func NewAgent(c AgentConfig, fragments []Fragment, records []Record) (*Agent, error) {
	book := newBook(c)
	maintainer, err := twochoice.NewMaintainer(c.Maintainer, book.table)
	if err != nil {
		return nil, err
	}
	a := &Agent{config: c, disk: map[uint64]*diskJob{}, fragments: map[fragmentKey]*held{}, book: book, maintainer: maintainer,
		expected: map[WriteID]twochoice.Ticket{},
		pulls:    map[uint64]*pull{}, busy: map[Node]time.Duration{},
		// Late answers to requests from before a restart must not match new requests.
		pullNumber: c.Epoch << 32}
	for _, f := range fragments {
		h := &held{fragmentKey: fragmentKey{f.Object, f.Write}, home: f.Node, from: f.From, to: f.To, durable: true,
			damage: f.Damage}
		a.fragments[h.fragmentKey] = h
		if f.Damage == "" { // nobody knows if a damaged fragment is needed
			a.ages = append(a.ages, h)
		}
	}
	for _, r := range records {
		if _, err := book.apply(r); err != nil {
			return nil, fmt.Errorf("the redirect log of agent %d: %w", c.Node, err)
		}
	}
	a.logged = len(records)
	_, a.now = book.table.Last()
	if !book.founded {
		a.append(a.founding())
	}
	return a, nil
}

// founding returns the log's first record, which ties the log to its cluster's size.
func (a *Agent) founding() *order {
	return &order{record: Record{Note: Note{Kind: ClusterIs, Value: uint64(a.config.Nodes)}}}
}

// diskJob is the follow-up of a disk operation.
type diskJob struct {
	done  func(DiskDone)
	bytes int64 // counted as load
	since time.Duration
	peers int32 // operations in flight at its start
}

// Take returns, once, the messages to send and the disk operations to carry out.
func (a *Agent) Take() ([]Send, []DiskOp) {
	sends, ops := a.sends, a.ops
	a.sends, a.ops = nil, nil
	return sends, ops
}

// Failed returns the reason why the agent stopped; its driver then ends. Nil while it works.
func (a *Agent) Failed() error { return a.failed }

// fail stops the agent, because it can no longer vouch for its answers.
func (a *Agent) fail(err error) {
	if a.failed == nil {
		a.failed = fmt.Errorf("agent %d stops: %w", a.config.Node, err)
		a.sends, a.ops = nil, nil
	}
}

// Receive handles a message.
func (a *Agent) Receive(now time.Duration, from Peer, m Message) {
	a.now = max(a.now, now)
	if a.failed != nil {
		return
	}
	switch m.Kind {
	case Hello:
		a.hello(from, m)
	case Probe:
		a.probe(from, m)
	case Decide:
		a.decided(m)
	case Put:
		a.put(from, m)
	case Register:
		a.register(from, m)
	case Query:
		a.query(from, m)
	case Get:
		a.get(from, m)
	case GetBase:
		a.getBase(from, m)
	case Data:
		a.pulled(from, m)
	case Drop:
		a.drop(m)
	case Fence:
		a.fence(from, m)
	case FenceReply:
		a.fenced(m)
	case Report:
		a.answer(from, m, a.report(m))
	case ReportReply:
		a.reported(from, m)
	case Status:
		text, _ := json.Marshal(a.Stats()) // only numbers: no error possible
		a.answer(from, m, Message{Kind: StatusReply, Data: text})
	}
}

// DiskDone handles the end of a disk operation.
func (a *Agent) DiskDone(now time.Duration, d DiskDone) {
	a.now = max(a.now, now)
	job := a.disk[d.Op]
	if job == nil || a.failed != nil {
		return
	}
	delete(a.disk, d.Op)
	if job.bytes > 0 {
		a.config.Detector.End(a.now, job.bytes, a.now-job.since, job.peers)
	}
	if d.Err != nil && !errors.Is(d.Err, ErrFull) && !errors.Is(d.Err, ErrGone) && !errors.Is(d.Err, ErrDamaged) {
		a.fail(d.Err)
		return
	}
	job.done(d)
}

// do begins a disk operation. bytes counts as load if above 0.
func (a *Agent) do(op DiskOp, ticket twochoice.Ticket, bytes int64, done func(DiskDone)) {
	a.op++
	op.Op = a.op
	job := &diskJob{done: done, bytes: bytes, since: a.now}
	if bytes > 0 {
		peers, _ := a.config.Detector.InFlight()
		job.peers = int32(peers)
		a.config.Detector.Begin(a.now, ticket, bytes)
	}
	a.disk[op.Op] = job
	a.ops = append(a.ops, op)
}

func (a *Agent) send(to Peer, m Message) { a.sends = append(a.sends, Send{to, m}) }

// answer answers a request.
func (a *Agent) answer(to Peer, request Message, answer Message) {
	answer.Call = request.Call
	a.send(to, answer)
}

// refuse answers a request with a refusal.
func (a *Agent) refuse(to Peer, request Message, kind Kind, code Code, format string, args ...any) {
	a.answer(to, request, Message{Kind: kind, Code: code,
		Text: fmt.Sprintf("agent %d: %s", a.config.Node, fmt.Sprintf(format, args...))})
}

// hello accepts a peer of the same version that addresses this node, and refuses others.
func (a *Agent) hello(from Peer, m Message) {
	switch {
	case m.Version != Version:
		a.refuse(from, m, Welcome, Refused, "it speaks version %d of the protocol and its peer version %d; "+
			"deploy the same version on both", Version, m.Version)
	case m.Node != a.config.Node:
		a.refuse(from, m, Welcome, Refused, "its peer expects agent %d at this address; give each agent "+
			"its own address", m.Node)
	default:
		a.answer(from, m, Message{Kind: Welcome, Version: Version, Node: a.config.Node, Epoch: a.config.Epoch})
	}
}

// probe answers with the node's load and cached loads of others (sections III.B and III.C).
func (a *Agent) probe(from Peer, m Message) {
	own, cached := a.config.Detector.Probe(a.now, int64(min(m.Size, MaxData)), nil)
	loads := make([]Load, 0, 1+len(cached))
	loads = append(loads, load(own))
	for _, r := range cached {
		loads = append(loads, load(r))
	}
	a.answer(from, m, Message{Kind: ProbeReply, Loads: loads})
}

// decided learns a scheduler's decision and the loads that come with it (sections III.B and III.C).
func (a *Agent) decided(m Message) {
	a.config.Detector.Remember(a.now, readings(m.Loads))
	ticket := a.config.Detector.Settle(a.now, twochoice.Ticket(m.Ticket), int64(min(m.Size, MaxData)))
	if m.Ticket == 0 && ticket != 0 {
		a.expected[m.Write] = ticket
	}
}

func load(r twochoice.Reading) Load {
	return Load{Node: Node(r.Server), InFlight: uint32(r.InFlight), Load: r.Load, Latency: uint64(r.Latency),
		Age: uint64(r.Age), Ticket: uint64(r.Ticket)}
}

func readings(loads []Load) []twochoice.Reading {
	out := make([]twochoice.Reading, len(loads))
	for i, l := range loads {
		out[i] = reading(l)
	}
	return out
}

// checkRange describes the defect of a request's object and range, or returns "".
func (a *Agent) checkRange(m Message) string {
	switch {
	case m.Object == "" || len(m.Object) > MaxName:
		return fmt.Sprintf("an object's name has %d bytes, allowed are 1 to %d", len(m.Object), MaxName)
	case m.From >= m.To || m.To-m.From > MaxData:
		return fmt.Sprintf("range %d to %d of %q has no bytes, or more than %d", m.From, m.To, m.Object, MaxData)
	case m.To > a.config.Size:
		return fmt.Sprintf("range %d to %d is beyond object %q, which has %d bytes at most", m.From, m.To,
			m.Object, a.config.Size)
	}
	return ""
}

// checkName describes why a write's name cannot ensure at-most-once execution, or returns "".
func (a *Agent) checkName(m Message) string {
	if m.Write.Client == 0 || m.Write.Seq == 0 {
		return fmt.Sprintf("a write of %q is named %v; each needs a name of its own, a client's number and a count above 0",
			m.Object, m.Write)
	}
	return ""
}

// checkHome reports a request for an object with another home, or returns "".
func (a *Agent) checkHome(m Message) string {
	if home := a.config.Home(m.Object); home != a.config.Node {
		return fmt.Sprintf("object %q is at home on agent %d; client and agents need the same placement",
			m.Object, home)
	}
	return ""
}

// AgentStats counts an agent's contents.
type AgentStats struct {
	Fragments int   `json:"fragments"` // on its store, including those being written or dropped
	Entries   int   `json:"entries"`   // live in its redirect table
	Objects   int   `json:"objects"`   // with redirected bytes
	Pulls     int   `json:"pulls"`     // in progress
	Clients   int   `json:"clients"`   // remembered
	Logged    int   `json:"logged"`    // records in its log
	InFlight  int64 `json:"in_flight"` // operations
	Bytes     int64 `json:"bytes"`     // in flight
}

// Stats returns the current counts.
func (a *Agent) Stats() AgentStats {
	operations, bytes := a.config.Detector.InFlight()
	return AgentStats{len(a.fragments), a.book.table.Len(), a.book.table.Objects(), len(a.pulls),
		len(a.book.sessions), a.logged, operations, bytes}
}

// Backlog returns the number of log records and disk operations in progress.
func (a *Agent) Backlog() int { return len(a.queue) + len(a.writing) + len(a.disk) }

// Now returns the agent's time, not before the time of its log's last record.
func (a *Agent) Now() time.Duration { return a.now }
