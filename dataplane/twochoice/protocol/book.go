package protocol

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"hotbed/dataplane/twochoice"
)

// NoteKind is the kind of a note.
type NoteKind uint8

// The notes.
const (
	NoNote NoteKind = iota
	// OfWrite: the record's write, and in Second the node of its second copy.
	OfWrite
	// OfFence: the write will never be ordered.
	OfFence
	// SettledAt: the write was ordered at stamp Value. Only in snapshots.
	SettledAt
	// LowIs: the client wants nothing below Value. Only in snapshots.
	LowIs
	// ObjectIs: the object has Value bytes, and Sums of its base replace the sums that they
	// overlap.
	ObjectIs
	// LastIs ends a snapshot with the last given receipt and time. Only in snapshots.
	LastIs
	// ClusterIs: there are Value agents. With another number objects would have other homes.
	ClusterIs
	// CutIs: the log's tail was cut off (1), or all agents have reported their fragments (0).
	CutIs
	noteKinds
)

// Note is the part of a record outside its table change.
type Note struct {
	Kind   NoteKind
	Write  WriteID
	Second Node // node plus 1; 0: none
	Value  uint64
	Sums   string // encoded
}

// Record is a record of the home's log: a change of the redirect table, a note, or both. A record
// without a change has Change.Kind 0 and at most an object.
type Record struct {
	Change twochoice.Record
	Note   Note
}

// Writes reports whether the record orders a write: the write is readable once the record is durable.
func (r Record) Writes() bool { return r.Note.Kind == OfWrite && r.Change.Kind == twochoice.Redirected }

// CutRecord returns the record that replaces a log's torn tail.
func CutRecord() Record { return Record{Note: Note{Kind: CutIs, Value: 1}} }

func fenceRecord(w WriteID) Record { return Record{Note: Note{Kind: OfFence, Write: w}} }

// fencedStamp is the stamp of a write that was given up.
const fencedStamp = 0

// session is the home's memory of a client process, so that each write is done at most once.
type session struct {
	low      uint64            // the client wants nothing below
	settled  map[uint64]uint64 // count to stamp, from low on
	underWay map[uint64]*order
}

// forget drops answers that the client no longer wants.
func (s *session) forget(low uint64) {
	if low <= s.low {
		return
	}
	s.low = low
	for seq := range s.settled {
		if seq < low {
			delete(s.settled, seq)
		}
	}
}

// place is the location of a live entry's fragment.
type place struct {
	write   WriteID
	targets []Node
}

// Dead is a fragment that no entry needs.
type Dead struct {
	Object  string
	Write   WriteID
	Targets []Node
}

// book is the home's state: the redirect table, the writes of its entries, and the completed writes
// of each client. It summarizes its log.
//
// In the table, server number Nodes means the home's own fragments: bytes that are at home, but not
// yet in the base.
type book struct {
	nodes    int
	self     Node
	table    *twochoice.Table
	places   map[twochoice.Receipt]place
	sessions map[uint64]*session
	objects  map[string]*object
	dead     []twochoice.Entry
	founded  bool // the log records the number of agents
	cut      bool // the log's tail was cut off, and the recount is incomplete
}

func newBook(c AgentConfig) *book {
	return &book{nodes: c.Nodes, self: c.Node, places: map[twochoice.Receipt]place{},
		table:    twochoice.NewTable(twochoice.Server(c.Node), twochoice.Servers(c.Nodes+1), c.Size),
		sessions: map[uint64]*session{}, objects: map[string]*object{}}
}

func (b *book) session(client uint64) *session {
	s := b.sessions[client]
	if s == nil {
		s = &session{settled: map[uint64]uint64{}, underWay: map[uint64]*order{}}
		b.sessions[client] = s
	}
	return s
}

// asked returns an object for a request, without creating state for an unwritten one.
func (b *book) asked(name string) *object {
	if o := b.objects[name]; o != nil {
		return o
	}
	return &object{}
}

func (b *book) object(name string) *object {
	o := b.objects[name]
	if o == nil {
		o = &object{}
		b.objects[name] = o
	}
	return o
}

// server returns a node's number in the table.
func (b *book) server(n Node) twochoice.Server {
	if n == b.self {
		return twochoice.Server(b.nodes)
	}
	return twochoice.Server(n)
}

// node is the inverse of server.
func (b *book) node(s twochoice.Server) Node {
	if int(s) == b.nodes {
		return b.self
	}
	return Node(s)
}

// write prepares the record of a write with durable copies on its targets.
func (b *book) write(now time.Duration, m Message) Record {
	change := b.table.Redirect(now, twochoice.Object(m.Object), twochoice.Range{Start: m.From, End: m.To},
		twochoice.Location{Server: b.server(m.Targets[0])})
	change.Location.Fragment = uint64(change.Receipt)
	note := Note{Kind: OfWrite, Write: m.Write}
	if len(m.Targets) > 1 {
		note.Second = m.Targets[1] + 1
	}
	return Record{change, note}
}

// apply applies a durable record, and returns the fragments that it makes unnecessary.
func (b *book) apply(r Record) ([]Dead, error) {
	var out []Dead
	if r.Change.Kind != 0 {
		entries, err := b.table.Apply(r.Change, b.dead[:0])
		if err != nil {
			return nil, fmt.Errorf("a record of the log cannot be: %w", err)
		}
		for _, e := range entries {
			p := b.places[e.Receipt]
			delete(b.places, e.Receipt)
			out = append(out, Dead{string(e.Object), p.write, p.targets})
		}
		b.dead = entries
	}
	switch n := r.Note; n.Kind {
	case OfWrite:
		p := place{n.Write, []Node{b.node(r.Change.Location.Server)}}
		if n.Second > 0 {
			p.targets = append(p.targets, n.Second-1)
		}
		b.places[r.Change.Receipt] = p
		if r.Change.Kind == twochoice.Redirected {
			o := b.object(string(r.Change.Object))
			o.size = max(o.size, r.Change.Range.End)
			b.settle(n.Write, uint64(r.Change.Receipt))
		}
	case OfFence:
		b.settle(n.Write, fencedStamp)
	case SettledAt:
		b.settle(n.Write, n.Value)
	case LowIs:
		b.session(n.Write.Client).forget(n.Value)
	case ObjectIs:
		o := b.object(string(r.Change.Object))
		o.size = max(o.size, n.Value)
		sums, err := decodeSums(n.Sums)
		if err != nil {
			return nil, fmt.Errorf("a record of the log cannot be: %w", err)
		}
		o.sums = inserted(o.sums, sums)
	case CutIs:
		b.cut = n.Value != 0
	case ClusterIs:
		if n.Value != uint64(b.nodes) {
			return nil, fmt.Errorf("it was written in a cluster of %d agents, and this one has %d: objects would be at "+
				"home elsewhere; start it with the cluster file that it had", n.Value, b.nodes)
		}
		b.founded = true
	case LastIs:
		b.table.Resume(r.Change.Receipt, r.Change.Time)
	}
	return out, nil
}

func (b *book) settle(w WriteID, stamp uint64) {
	if s := b.session(w.Client); w.Seq >= s.low {
		s.settled[w.Seq] = stamp
	}
}

// pieces returns the locations of a range.
func (b *book) pieces(name string, from, to uint64) []Piece {
	found := b.table.Query(twochoice.Object(name), twochoice.Range{Start: from, End: to}, nil)
	out := make([]Piece, len(found))
	for i, f := range found {
		out[i] = Piece{From: f.Range.Start, To: f.Range.End}
		if f.Receipt > 0 {
			p := b.places[f.Receipt]
			out[i].Write, out[i].Targets = p.write, p.targets
			out[i].Origin, out[i].Stamp = f.Range.Start-f.Offset, uint64(f.Receipt)
		}
	}
	return out
}

// needs reports whether readers may need a byte of a fragment on a node.
func (b *book) needs(m Message) bool {
	return slices.ContainsFunc(b.pieces(m.Object, m.From, m.To), func(p Piece) bool {
		return p.Write == m.Write && slices.Contains(p.Targets, m.Node)
	})
}

// snapshot returns log records that can rebuild the book.
func (b *book) snapshot() []Record {
	out := []Record{{Note: Note{Kind: ClusterIs, Value: uint64(b.nodes)}}}
	for _, r := range b.table.Snapshot() {
		p := b.places[r.Receipt]
		note := Note{Kind: OfWrite, Write: p.write}
		if len(p.targets) > 1 {
			note.Second = p.targets[1] + 1
		}
		out = append(out, Record{r, note})
	}
	for _, client := range sortedKeys(b.sessions) {
		s := b.sessions[client]
		out = append(out, Record{Note: Note{Kind: LowIs, Write: WriteID{Client: client}, Value: s.low}})
		for _, seq := range sortedKeys(s.settled) {
			out = append(out, Record{Note: Note{Kind: SettledAt, Write: WriteID{client, seq}, Value: s.settled[seq]}})
		}
	}
	for _, name := range sortedKeys(b.objects) {
		if o := b.objects[name]; o.size > 0 {
			out = append(out, objectRecord(name, o.size, nil))
			for sums := range slices.Chunk(o.sums, mostSums) {
				out = append(out, objectRecord(name, o.size, sums))
			}
		}
	}
	if b.cut {
		out = append(out, CutRecord())
	}
	last, now := b.table.Last()
	return append(out, Record{Change: twochoice.Record{Receipt: last, Time: now}, Note: Note{Kind: LastIs}})
}

// mostSums is the maximum number of sums in a record.
const mostSums = 4096

func objectRecord(name string, size uint64, sums []Sum) Record {
	return Record{Change: twochoice.Record{Object: twochoice.Object(name)},
		Note: Note{Kind: ObjectIs, Value: size, Sums: encodeSums(sums)}}
}

func sortedKeys[K uint64 | string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
