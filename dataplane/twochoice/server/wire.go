package server

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"hotbed/dataplane/internal/admission"
	"hotbed/dataplane/twochoice/protocol"
)

// A packet is a message after its length (4 bytes, big endian).
const (
	mostHeader = 4 << 20 // a message without its data
	// bufferSize is a TLS record: larger data bypasses the buffer, and a machine may have thousands
	// of connections.
	bufferSize = 16 << 10
	// mostQueued limits the bytes queued for a peer; a slower peer is given up.
	mostQueued = 512 << 20
	// handshake limits the time of a peer to prove the key, and then to say hello.
	handshake = 3 * time.Second
)

// patience returns the time limit for receiving or sending this many bytes.
func patience(bytes int) time.Duration {
	const least, perByte = 15 * time.Second, 250 * time.Nanosecond // 4 MB/s
	return least + time.Duration(bytes)*perByte
}

// wire is one connection. It sends messages, those without data first, and delivers received
// messages. The protocol needs no order.
type wire struct {
	conn *tls.Conn
	gate *gate // of an agent

	mu      sync.Mutex
	wake    sync.Cond
	taken   sync.Cond          // signals that queued messages were sent
	first   []protocol.Message // without data: a probe must not wait behind writes
	queue   []protocol.Message
	calls   map[uint64]bool // of messages with data
	queued  int             // bytes, including those being sent
	last    bool            // close after the queue is sent
	surplus bool            // exceeds the agent's connection limit
	err     error
}

func newWire(conn *tls.Conn, g *gate) *wire {
	w := &wire{conn: conn, gate: g, calls: map[uint64]bool{}}
	w.wake.L, w.taken.L = &w.mu, &w.mu
	return w
}

// listen waits until a requesting peer may send more. We always read from agents that we ask: two
// agents waiting for each other's memory would deadlock.
func (w *wire) listen() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil && w.gate.crowds(w.queued) {
		w.taken.Wait()
	}
	return w.err
}

// send queues a message without waiting. It skips data already queued, for example of a write
// repeated because the connection is slow.
func (w *wire) send(m protocol.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || w.last {
		return
	}
	switch {
	case len(m.Data) == 0:
		w.first = append(w.first, m)
	case w.calls[m.Call]:
		return
	default:
		w.queue = append(w.queue, m)
		w.calls[m.Call] = true
	}
	n := weight(m)
	w.queued += n
	w.gate.add(n)
	if w.queued > mostQueued {
		w.fail(fmt.Errorf("the peer does not take %d bytes that wait for it", w.queued))
	}
	w.wake.Signal()
}

// finish closes the connection when the queue is sent.
func (w *wire) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = true
	w.wake.Signal()
}

func (w *wire) close(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail(err)
	w.wake.Signal()
}

// fail closes the connection; the lock is held.
func (w *wire) fail(err error) {
	if w.err == nil {
		w.err = err
		w.gate.add(-w.queued)
		w.taken.Signal()
		w.first, w.queue, w.queued = nil, nil, 0
		_ = w.conn.NetConn().Close()
	}
}

// idle reports whether there is nothing to send and more may come; the lock is held.
func (w *wire) idle() bool { return len(w.first)+len(w.queue) == 0 && w.err == nil && !w.last }

// next removes the next message from the queues, if it should be sent; the lock is held.
func (w *wire) next() (protocol.Message, bool) {
	from := &w.first
	if len(*from) == 0 {
		from = &w.queue
	}
	if w.err != nil || len(*from) == 0 {
		return protocol.Message{}, false
	}
	m := (*from)[0]
	(*from)[0] = protocol.Message{}
	*from = (*from)[1:]
	return m, true
}

// sent releases the memory of a sent message.
func (w *wire) sent(m protocol.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(m.Data) > 0 {
		delete(w.calls, m.Call)
	}
	if w.err == nil {
		w.queued -= weight(m)
		w.gate.add(-weight(m))
		w.taken.Signal()
	}
}

// write sends queued messages until the connection ends.
func (w *wire) write() {
	out := bufio.NewWriterSize(w.conn, bufferSize)
	var head []byte
	for {
		w.mu.Lock()
		for w.idle() {
			w.mu.Unlock()
			_ = w.conn.SetWriteDeadline(time.Now().Add(patience(0)))
			if err := out.Flush(); err != nil {
				w.close(err)
			}
			w.mu.Lock()
			if w.idle() {
				w.wake.Wait()
			}
		}
		m, ok := w.next()
		w.mu.Unlock()
		if !ok {
			w.close(errors.Join(out.Flush(), io.EOF))
			return
		}
		head = m.Append(append(head[:0], 0, 0, 0, 0))
		binary.BigEndian.PutUint32(head, uint32(len(head)-4+len(m.Data)))
		if len(head)+len(m.Data) > out.Available() {
			_ = w.conn.SetWriteDeadline(time.Now().Add(patience(len(m.Data))))
		}
		_, err := out.Write(head)
		if err == nil {
			_, err = out.Write(m.Data)
		}
		if err != nil {
			w.close(err)
			return
		}
		w.sent(m)
	}
}

// read delivers messages, each with its reserved memory or its refusal, and returns the reason why
// the connection ended.
func (w *wire) read(take func(m protocol.Message, cost int64, refused protocol.Code) error) error {
	in := bufio.NewReaderSize(w.conn, bufferSize)
	for {
		var length [4]byte
		if _, err := io.ReadFull(in, length[:]); err != nil {
			return err
		}
		n := int(binary.BigEndian.Uint32(length[:]))
		if n > mostHeader+protocol.MaxData {
			return fmt.Errorf("a message of %d bytes is longer than any", n)
		}
		waits := in.Buffered() < n
		if waits {
			_ = w.conn.SetReadDeadline(time.Now().Add(patience(n)))
		}
		m, cost, refused, err := w.packet(in, n)
		if waits && err == nil {
			err = w.conn.SetReadDeadline(time.Time{})
		}
		if err == nil {
			err = take(m, cost, refused)
		}
		if err != nil {
			return err
		}
	}
}

// packet reads a message of n bytes; of a refused long message only the head.
func (w *wire) packet(in *bufio.Reader, n int) (m protocol.Message, cost int64, refused protocol.Code, err error) {
	if n > smallPacket {
		if refused = w.gate.takePacket(n); refused != protocol.OK {
			head, _ := in.Peek(min(n, bufferSize)) // the error occurs again
			if m, err = protocol.DecodeHead(head); err != nil {
				m = protocol.Message{} // the head is longer; a waiting sender asks again
			}
			_, err = in.Discard(n)
			return m, 0, refused, err
		}
		cost = int64(n)
	}
	packet := make([]byte, n)
	if _, err = io.ReadFull(in, packet); err == nil {
		m, err = protocol.Decode(packet)
	}
	if err == nil {
		cost, refused = w.gate.takeRequest(m, n, cost)
	}
	if err != nil || refused != protocol.OK {
		w.gate.add(int(-cost))
		cost = 0
	}
	return m, cost, refused, err
}

// quiet reports whether an error only means that a connection ended.
func quiet(err error) bool {
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrUnexpectedEOF)
}

// errForeign means that a first answer does not belong to this protocol version.
var errForeign = errors.New("it is not understood")

// greet sends a first message and returns its answer.
func greet(w *wire, hello protocol.Message) (protocol.Message, error) {
	packet := hello.Append(make([]byte, 4))
	binary.BigEndian.PutUint32(packet, uint32(len(packet)-4))
	if _, err := w.conn.Write(packet); err != nil {
		return protocol.Message{}, err
	}
	var length [4]byte
	if _, err := io.ReadFull(w.conn, length[:]); err != nil {
		return protocol.Message{}, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > mostHeader {
		return protocol.Message{}, fmt.Errorf("%w: an answer of %d bytes to hello is longer than any", errForeign, n)
	}
	answer := make([]byte, n)
	if _, err := io.ReadFull(w.conn, answer); err != nil {
		return protocol.Message{}, err
	}
	m, err := protocol.Decode(answer)
	if err != nil {
		err = fmt.Errorf("%w: %w", errForeign, err)
	}
	return m, err
}

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
