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

	"hotbed/dataplane/twochoice/protocol"
)

// A packet is a message behind its length (4 bytes, big endian).
const (
	mostHeader = 4 << 20 // a message without its data
	// bufferSize is a record of TLS: data goes past buffers that it does not fit in, and a machine may
	// have thousands of connections.
	bufferSize = 16 << 10
	// mostQueued bounds the bytes that wait for a peer; one that reads no faster is given up.
	mostQueued = 512 << 20
	// handshake bounds how long a peer may take to say who it is.
	handshake = 10 * time.Second
)

// wire is one connection: it sends messages, those without data before those with, and hands over those
// that come. The protocol needs no order.
type wire struct {
	conn *tls.Conn

	mu     sync.Mutex
	wake   sync.Cond
	first  []protocol.Message // without data: a probe does not wait behind what others write
	queue  []protocol.Message
	queued int
	last   bool // close after what is queued
	err    error
}

func newWire(conn *tls.Conn) *wire {
	w := &wire{conn: conn}
	w.wake.L = &w.mu
	return w
}

// send queues a message; it never waits.
func (w *wire) send(m protocol.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || w.last {
		return
	}
	if len(m.Data) == 0 {
		w.first = append(w.first, m)
	} else {
		w.queue = append(w.queue, m)
	}
	w.queued += len(m.Data)
	if w.queued > mostQueued {
		w.fail(fmt.Errorf("the peer does not take %d bytes that wait for it", w.queued))
	}
	w.wake.Signal()
}

// finish closes the connection when all that is queued is sent.
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
		w.first, w.queue = nil, nil
		_ = w.conn.NetConn().Close()
	}
}

// idle says whether there is nothing to send, and more may come; the lock is held.
func (w *wire) idle() bool { return len(w.first)+len(w.queue) == 0 && w.err == nil && !w.last }

// next takes the next message off the queues, if the connection is to send one; the lock is held.
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
	w.queued -= len(m.Data)
	return m, true
}

// write sends what is queued until the connection ends.
func (w *wire) write() {
	out := bufio.NewWriterSize(w.conn, bufferSize)
	var head []byte
	for {
		w.mu.Lock()
		for w.idle() {
			w.mu.Unlock()
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
		_, err := out.Write(head)
		if err == nil {
			_, err = out.Write(m.Data)
		}
		if err != nil {
			w.close(err)
			return
		}
	}
}

// read hands messages over until the connection ends, and tells why it did.
func (w *wire) read(take func(protocol.Message) error) error {
	in := bufio.NewReaderSize(w.conn, bufferSize)
	for {
		var length [4]byte
		if _, err := io.ReadFull(in, length[:]); err != nil {
			return err
		}
		n := binary.BigEndian.Uint32(length[:])
		if n > mostHeader+protocol.MaxData {
			return fmt.Errorf("a message of %d bytes is longer than any", n)
		}
		packet := make([]byte, n)
		if _, err := io.ReadFull(in, packet); err != nil {
			return err
		}
		m, err := protocol.Decode(packet)
		if err == nil {
			err = take(m)
		}
		if err != nil {
			return err
		}
	}
}

// quiet says whether an error only says that a connection ended.
func quiet(err error) bool {
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrUnexpectedEOF)
}

// errForeign says that a first answer is none of this version's protocol.
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
