package protocol

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

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
