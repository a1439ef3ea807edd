package server

import (
	"fmt"

	"hotbed/dataplane/internal/admission"
	"hotbed/dataplane/twochoice/protocol"
)

// gate is an agent's memory budget for requests, their disk operations and answers. A request's
// memory is reserved before the request is read completely. Without memory now the answer is Busy;
// a request that never fits is refused. A nil gate, a client's, admits everything.
type gate struct {
	bytes admission.Bytes
	most  int64
	node  protocol.Node
}

const (
	// smallPacket is the maximum size of a message read without a reservation.
	smallPacket = 4 << 10
	// messageBytes is the memory of a message, a record or a disk operation without data.
	messageBytes = 2 << 10
	fewAnswers   = 16 * messageBytes
)

// weight returns the approximate memory of a message.
func weight(m protocol.Message) int {
	return messageBytes + len(m.Data) + len(m.Object) + len(m.Text) + 64*len(m.Loads) + 96*len(m.Pieces)
}

func (g *gate) add(n int) {
	if g != nil {
		g.bytes.Add(int64(n))
	}
}

// crowds reports whether a peer must take its pending answers before it may send more: they are
// many, or there is no memory for them.
func (g *gate) crowds(pending int) bool {
	return g != nil && pending > fewAnswers && (int64(pending) > g.most/4 || g.bytes.Used() > g.most)
}

// takePacket reserves memory for a long message. It leaves a quarter for messages without data, so
// that data waiting for a slow disk does not block other requests.
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

// takeRequest reserves the additional memory of a request of n bytes, and returns its total.
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
	default: // short-lived, or they free memory
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

// answers maps requests to replies that can carry a refusal. An unanswered probe is a refusal
// itself, and the other requests are repeated.
var answers = map[protocol.Kind]protocol.Kind{protocol.Put: protocol.PutReply, protocol.Register: protocol.RegisterReply,
	protocol.Query: protocol.QueryReply, protocol.Get: protocol.Data, protocol.GetBase: protocol.Data}

// refusal returns the answer to a request that was not admitted, and true if it gets one.
func (g *gate) refusal(m protocol.Message, code protocol.Code) (protocol.Message, bool) {
	kind, asked := answers[m.Kind]
	text := fmt.Sprintf("agent %d has no memory for it now", g.node)
	if code == protocol.Refused {
		text = fmt.Sprintf("agent %d: %d to %d of %q is more than its memory of %d bytes has room for; ask for less at a time, or "+
			"raise `memory` in the cluster file", g.node, m.From, m.To, m.Object, g.most)
	}
	return protocol.Message{Kind: kind, Call: m.Call, Code: code, Text: text}, asked
}
