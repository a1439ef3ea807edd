package server

import (
	"fmt"

	"hotbed/dataplane/internal/admission"
	"hotbed/dataplane/twochoice/protocol"
)

// gate is an agent's budget of memory for requests, for what the disk does for them and for answers. What
// a request will take is taken before it is read to its end; a request that finds no room is answered
// with Busy, and one that never can is refused. A nil gate, a client's, lets everything in.
type gate struct {
	bytes admission.Bytes
	most  int64
	node  protocol.Node
}

const (
	// smallPacket is the longest message that is read before anything is taken for it.
	smallPacket = 4 << 10
	// messageBytes is about what a message, a record or a disk operation takes without its data.
	messageBytes = 2 << 10
	fewAnswers   = 16 * messageBytes
)

// weight is about how much memory a message takes.
func weight(m protocol.Message) int {
	return messageBytes + len(m.Data) + len(m.Object) + len(m.Text) + 64*len(m.Loads) + 96*len(m.Pieces)
}

func (g *gate) add(n int) {
	if g != nil {
		g.bytes.Add(int64(n))
	}
}

// crowds returns true if a peer is not to be listened to until it has taken some of the answers that wait for
// it: they are many, or there is no memory for them.
func (g *gate) crowds(pending int) bool {
	return g != nil && pending > fewAnswers && (int64(pending) > g.most/4 || g.bytes.Used() > g.most)
}

// takePacket takes what a long message takes: a quarter is left to those without data, so that bytes that
// a disk does not take leave room for what is asked of it.
func (g *gate) takePacket(n int) protocol.Code {
	switch {
	case g == nil:
	case int64(n) > g.most*3/4:
		return protocol.Refused
	case !g.bytes.Take(int64(n), g.most*3/4):
		return protocol.Busy
	}
	return protocol.OK
}

// takeRequest takes what a request of n bytes takes beyond what was taken for it, and returns how much it
// is in all.
func (g *gate) takeRequest(m protocol.Message, n int, taken int64) (cost int64, refused protocol.Code) {
	if g == nil {
		return 0, protocol.OK
	}
	more := int64(messageBytes+n) - taken
	switch m.Kind {
	case protocol.Get, protocol.GetBase:
		if m.From < m.To && m.To-m.From <= protocol.MaxData {
			more += int64(m.To - m.From)
		}
	case protocol.Put, protocol.Register, protocol.Query, protocol.Probe, protocol.Fence, protocol.Report:
	default: // they take nothing for longer than a moment, or give something back
		g.bytes.Add(more)
		return taken + more, protocol.OK
	}
	switch {
	case taken+more > g.most:
		return taken, protocol.Refused
	case !g.bytes.Take(more, g.most):
		return taken, protocol.Busy
	}
	return taken + more, protocol.OK
}

// answers are the replies to requests that are refused with a reason. A probe without an answer says as
// much, and the other requests come again.
var answers = map[protocol.Kind]protocol.Kind{protocol.Put: protocol.PutReply, protocol.Register: protocol.RegisterReply,
	protocol.Query: protocol.QueryReply, protocol.Get: protocol.Data, protocol.GetBase: protocol.Data}

// refusal is the answer to a request that was not let in, and true if it gets one.
func (g *gate) refusal(m protocol.Message, code protocol.Code) (protocol.Message, bool) {
	kind, asked := answers[m.Kind]
	text := fmt.Sprintf("agent %d has no memory for it now", g.node)
	if code == protocol.Refused {
		text = fmt.Sprintf("agent %d: %d to %d of %q is more than its memory of %d bytes has room for; ask for less at a time, or "+
			"raise `memory` in the cluster file", g.node, m.From, m.To, m.Object, g.most)
	}
	return protocol.Message{Kind: kind, Call: m.Call, Code: code, Text: text}, asked
}
