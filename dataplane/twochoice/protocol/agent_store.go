package protocol

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"hotbed/dataplane/twochoice"
)

// fragmentKey names a fragment on a store.
type fragmentKey struct {
	object string
	write  WriteID
}

// held is a fragment that a store has or will soon have.
type held struct {
	fragmentKey
	home     Node
	from, to uint64
	durable  bool
	gone     bool   // being dropped, or never stored
	damage   string // reason that its header is unreadable
	since    time.Duration
	asked    time.Duration // time of the last question to its home
	waiting  []waiter      // for durability
}

// waiter is a request that waits for a disk operation.
type waiter struct {
	from Peer
	m    Message
}

// waits returns a request without the data that it no longer needs.
func waits(from Peer, m Message) waiter {
	m.Data, m.Loads = nil, nil
	return waiter{from, m}
}

// find returns the fragment of a write, which may be damaged, or nil.
func (a *Agent) find(object string, w WriteID) *held {
	if f := a.fragments[fragmentKey{object, w}]; f != nil {
		return f
	}
	return a.fragments[fragmentKey{"", w}]
}

// put stores a fragment; an existing fragment is never written again.
func (a *Agent) put(from Peer, m Message) {
	ticket := twochoice.Ticket(m.Ticket)
	if expected := a.expected[m.Write]; expected != 0 {
		ticket = expected
		delete(a.expected, m.Write)
	}
	problem := a.checkRange(m)
	switch {
	case uint64(len(m.Data)) != m.To-m.From:
		problem = cmp.Or(problem, "a fragment's bytes are not as many as its range")
	case m.Register:
		problem = cmp.Or(problem, a.checkHome(m))
	}
	if problem = cmp.Or(problem, a.checkName(m)); problem != "" {
		a.config.Detector.Settle(a.now, ticket, 0)
		a.refuse(from, m, PutReply, Refused, "%s", problem)
		return
	}
	if m.Register && a.settled(from, m) {
		return
	}
	key := fragmentKey{m.Object, m.Write}
	w := waits(from, m)
	f := a.find(m.Object, m.Write)
	if f != nil && (f.damage == "" || f.gone) {
		if f.damage == "" && (f.from != m.From || f.to != m.To) {
			a.refuse(from, m, PutReply, Refused, "write %v has two ranges of %q; each write needs a name of its own",
				m.Write, m.Object)
			return
		}
		f.since = a.now
		switch {
		case f.gone: // a late duplicate; a waiting client asks again
		case f.durable:
			a.stored(w)
		case len(f.waiting) < 4:
			f.waiting = append(f.waiting, w)
		}
		return
	}
	f = &held{fragmentKey: key, home: m.Node, from: m.From, to: m.To, since: a.now, waiting: []waiter{w}}
	a.fragments[key] = f
	op := DiskOp{Kind: PutFragment, Object: m.Object, Write: m.Write, Node: m.Node, From: m.From, To: m.To,
		Data: m.Data}
	a.do(op, ticket, int64(len(m.Data)), func(d DiskDone) { a.putDone(f, d) })
	a.yield()
}

// putDone answers the requests that wait for a fragment.
func (a *Agent) putDone(f *held, d DiskDone) {
	waiting := f.waiting
	f.waiting = nil
	if d.Err != nil {
		f.gone = true
		delete(a.fragments, f.fragmentKey)
		for _, w := range waiting {
			a.refuse(w.from, w.m, PutReply, codeOf(d.Err), "%d bytes of %q: %v", f.to-f.from, f.object, d.Err)
		}
		return
	}
	f.durable = true
	delete(a.fragments, fragmentKey{"", f.write}) // it replaces any damaged fragment
	a.ages = append(a.ages, f)
	for _, w := range waiting {
		a.stored(w)
	}
}

// stored answers a put with a durable fragment, or continues with ordering it.
func (a *Agent) stored(w waiter) {
	if w.m.Register {
		w.m.Targets = []Node{a.config.Node}
		a.register(w.from, w.m)
		return
	}
	a.answer(w.from, w.m, Message{Kind: PutReply})
}

// get reads a part of a fragment.
func (a *Agent) get(from Peer, m Message) {
	f := a.find(m.Object, m.Write)
	switch problem := a.checkRange(m); {
	case problem != "":
		a.refuse(from, m, Data, Refused, "%s", problem)
		return
	case f == nil || !f.durable || f.gone:
		a.refuse(from, m, Data, Gone, "fragment %v of %q is not here", m.Write, m.Object)
		return
	case f.damage != "":
		a.refuse(from, m, Data, Failed, "range %d to %d of %q: %s", m.From, m.To, m.Object, f.damage)
		return
	case m.From < f.from || m.To > f.to:
		a.refuse(from, m, Data, Refused, "range %d to %d is beyond fragment %v of %q, which is %d to %d", m.From,
			m.To, m.Write, m.Object, f.from, f.to)
		return
	case m.Register && !a.idle(twochoice.Server(a.config.Node)):
		a.refuse(from, m, Data, Busy, "it is not idle")
		return
	}
	op := DiskOp{Kind: GetFragment, Object: m.Object, Write: m.Write, Node: f.home, From: m.From, To: m.To}
	a.do(op, 0, int64(m.To-m.From), func(d DiskDone) { a.read(from, m, d) })
}

// read answers a get.
func (a *Agent) read(from Peer, m Message, d DiskDone) {
	if d.Err != nil {
		a.refuse(from, m, Data, codeOf(d.Err), "range %d to %d of %q: %v", m.From, m.To, m.Object, d.Err)
		return
	}
	a.answer(from, m, Message{Kind: Data, Data: d.Data})
}

// drop removes a fragment that its home no longer needs.
func (a *Agent) drop(m Message) {
	if f := a.find(m.Object, m.Write); f != nil && f.durable && !f.gone {
		a.remove(f)
	}
}

// remove reserves the name until the fragment is gone, because nothing else may touch it.
func (a *Agent) remove(f *held) {
	f.gone = true
	op := DiskOp{Kind: DropFragment, Object: f.object, Write: f.write, Node: f.home}
	a.do(op, 0, 0, func(DiskDone) { delete(a.fragments, f.fragmentKey) })
}

// Tick advances time: it gives up hanging pulls, asks about orphans, and begins new pulls if
// allowed.
func (a *Agent) Tick(now time.Duration) {
	a.now = max(a.now, now)
	if a.failed != nil {
		return
	}
	maps.DeleteFunc(a.expected, func(_ WriteID, t twochoice.Ticket) bool { return !a.config.Detector.Expects(a.now, t) })
	a.askReports()
	a.sweep()
	a.maintain()
}

// Limits of one sweep tick: fragments examined, and questions.
const (
	lookedAtAtOnce = 512
	askedAtOnce    = 32
)

// sweep asks the homes of old fragments if the fragments are still needed.
func (a *Agent) sweep() {
	asked := 0
	for range min(len(a.ages), lookedAtAtOnce) {
		f := a.ages[0]
		a.ages = a.ages[1:]
		if f.gone {
			continue
		}
		a.ages = append(a.ages, f)
		if f.since == 0 { // it existed at the agent's start
			f.since = a.now
		}
		if asked >= askedAtOnce || a.now-max(f.since, f.asked) < a.config.Orphans {
			continue
		}
		asked++
		f.asked = a.now
		m := Message{Kind: Fence, Object: f.object, Write: f.write, From: f.from, To: f.to, Node: a.config.Node}
		if f.home == a.config.Node {
			a.fence(Peer(a.config.Node), m)
		} else {
			a.send(Peer(f.home), m)
		}
	}
}

// fenced removes a fragment that its home does not need.
func (a *Agent) fenced(m Message) {
	if f := a.fragments[fragmentKey{m.Object, m.Write}]; f != nil && f.durable && !f.gone &&
		m.Code == OK && !m.Needed {
		a.remove(f)
	}
}

// recount is a home's survey of all stores' fragments after its log's tail was cut off. A cut frame
// was acknowledged only if both of its copies are lost. To protect acknowledged bytes even then, no
// fragment is given up until all agents have reported.
type recount struct {
	asked   time.Duration
	after   map[Node]WriteID // agents with an incomplete report, and their last reported fragment
	unnamed []WriteID        // of writes that are not in the log
}

// mostReported is the maximum number of fragments in a message.
const mostReported = 4096

// askReports asks the agents that have not yet reported, after a cut.
func (a *Agent) askReports() {
	if !a.book.cut || a.recount != nil && (len(a.recount.after) == 0 || a.now-a.recount.asked < a.config.Patience) {
		return
	}
	if a.recount == nil {
		a.recount = &recount{after: map[Node]WriteID{}}
		for n := range a.config.Nodes {
			a.recount.after[Node(n)] = WriteID{}
		}
	}
	a.recount.asked = a.now
	for n := range a.config.Nodes {
		if _, left := a.recount.after[Node(n)]; left {
			a.askReport(Node(n))
		}
	}
}

func (a *Agent) askReport(n Node) {
	m := Message{Kind: Report, Node: a.config.Node, Epoch: a.config.Epoch, Write: a.recount.after[n]}
	if n == a.config.Node {
		a.reported(Peer(n), a.report(m))
	} else {
		a.send(Peer(n), m)
	}
}

// report returns this store's fragments of a home, in the order of their names.
func (a *Agent) report(m Message) Message {
	reply := Message{Kind: ReportReply, Epoch: m.Epoch, Write: m.Write}
	for _, f := range a.fragments {
		if f.durable && !f.gone && (f.home == m.Node || f.damage != "") && byName(f.write, m.Write) > 0 {
			reply.Pieces = append(reply.Pieces, Piece{From: f.from, To: f.to, Write: f.write})
		}
	}
	slices.SortFunc(reply.Pieces, func(x, y Piece) int { return byName(x.Write, y.Write) })
	if len(reply.Pieces) > mostReported {
		reply.Pieces, reply.Needed = reply.Pieces[:mostReported], true
	}
	return reply
}

func byName(x, y WriteID) int {
	return cmp.Or(cmp.Compare(x.Client, y.Client), cmp.Compare(x.Seq, y.Seq))
}

// reported handles a report; after the last one fragments may be given up again.
func (a *Agent) reported(from Peer, m Message) {
	if a.recount == nil || m.Epoch != a.config.Epoch || from >= FirstClient {
		return
	}
	after, left := a.recount.after[Node(from)]
	if !left || m.Write != after {
		return
	}
	live := map[WriteID]bool{}
	for _, p := range a.book.places {
		live[p.write] = true
	}
	for _, p := range m.Pieces {
		s := a.book.session(p.Write.Client)
		if _, settled := s.settled[p.Write.Seq]; !settled && s.underWay[p.Write.Seq] == nil && !live[p.Write] {
			a.recount.unnamed = append(a.recount.unnamed, p.Write)
		}
		after = p.Write
	}
	if m.Needed {
		a.recount.after[Node(from)] = after
		a.askReport(Node(from))
		return
	}
	delete(a.recount.after, Node(from))
	if len(a.recount.after) == 0 {
		a.append(&order{record: Record{Note: Note{Kind: CutIs}}, done: a.recounted})
	}
}

// recounted ends the recount when its end is in the log.
func (a *Agent) recounted(err error) {
	if err == nil {
		unnamed := a.recount.unnamed
		a.notices = append(a.notices, fmt.Sprintf("the tail of the redirect log was cut off before; all %d agents have "+
			"reported their fragments since: %d belong to no write in the log and are removed as orphans, first %v",
			a.config.Nodes, len(unnamed), unnamed[:min(len(unnamed), 16)]))
	}
	a.recount = nil
}

// Notices returns messages for the operator, each once.
func (a *Agent) Notices() []string {
	out := a.notices
	a.notices = nil
	return out
}
