package http1

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
)

const (
	// pieceSize is the size of one write of a request, in bytes: most small objects fit.
	pieceSize = 128 << 10
	// writeSlice is how long a write may block before checking for an early answer.
	writeSlice = 200 * time.Millisecond
	// chunkHead is the length of a chunk's size line with the maximum number of digits.
	chunkHead = len("00000000\r\n")
	chunkEnd  = len("\r\n0\r\n\r\n")
)

var pieces = sync.Pool{New: func() any { return new([pieceSize]byte) }}

// sending is a request in progress.
type sending struct {
	piece *[pieceSize]byte // nil: the request has no body
	begin []byte           // the header, and as much of the body as fits after it
	body  io.Reader
	left  int64 // unread bytes of the body; -1: not known
	whole bool  // the body was read to its end
	sent  int64
}

func (s *sending) release() {
	if s.piece != nil {
		pieces.Put(s.piece)
		s.piece = nil
	}
}

// prepare writes the header and takes the beginning of the body.
func (c *Conn) prepare(q *Request) (*sending, error) {
	head, err := appendHead(c.head[:0], q, c.address)
	if err != nil {
		return nil, &Error{Wrong, err}
	}
	c.head = head
	s := &c.sending
	*s = sending{begin: head, body: q.Body, left: q.Length}
	if q.Body == nil || q.Length == 0 {
		s.whole = true
		return s, nil
	}
	if len(head) > pieceSize/2 {
		return nil, &Error{Wrong, fmt.Errorf("the request's header has %d bytes", len(head))}
	}
	s.piece = pieces.Get().(*[pieceSize]byte)
	if s.begin, err = s.fill(append(s.piece[:0], head...)); err != nil {
		s.release()
		return nil, &Error{BadBody, err}
	}
	return s, nil
}

// fill reads as much of the body as fits after b, framed as it is sent.
func (s *sending) fill(b []byte) ([]byte, error) {
	if s.left < 0 {
		return s.fillChunk(b)
	}
	n := min(s.left, int64(cap(b)-len(b)))
	read, err := io.ReadFull(s.body, b[len(b):len(b)+int(n)])
	s.left -= int64(read)
	s.whole = s.left == 0
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = fmt.Errorf("the body ended %d bytes before it should", s.left)
	}
	return b[:len(b)+read], err
}

func (s *sending) fillChunk(b []byte) ([]byte, error) {
	at := len(b)
	data := b[at+chunkHead : cap(b)-chunkEnd]
	n, err := io.ReadFull(s.body, data)
	if s.whole = err == io.EOF || err == io.ErrUnexpectedEOF; s.whole {
		err = nil
	}
	if n > 0 {
		b = b[:at+chunkHead+n]
		digits := b[at : at+chunkHead-2]
		for i := range digits {
			digits[i] = "0123456789abcdef"[n>>(4*(len(digits)-1-i))&15]
		}
		copy(b[at+chunkHead-2:], "\r\n")
		b = append(b, "\r\n"...)
	}
	if s.whole {
		b = append(b, "0\r\n\r\n"...)
	}
	return b, err
}

// send writes the request and reads the answer's header. If the server answers early, send stops
// writing, and the connection ends with that answer.
func (c *Conn) send(s *sending) error {
	for b := s.begin; ; {
		if answered, err := c.write(b, s); err != nil {
			return c.salvage(s, err)
		} else if answered {
			return nil
		}
		if s.whole {
			return c.receive()
		}
		if c.listening(s) {
			if answered, err := c.overhear(); answered || err != nil {
				return err
			}
		}
		if memory := s.memory(); memory != nil {
			s.whole = true
			b = b[:0]
			if answered, err := c.writeAll(memory, s); err != nil {
				return c.salvage(s, err)
			} else if answered {
				return nil
			}
			continue
		}
		var err error
		if b, err = s.fill(s.piece[:0]); err != nil {
			return &Error{BadBody, err}
		}
	}
}

// memory returns the rest of an in-memory body, which can be sent without a copy.
func (s *sending) memory() io.WriterTo {
	type known interface {
		io.WriterTo
		Len() int
	}
	if body, ok := s.body.(known); ok && int64(body.Len()) == s.left {
		return body
	}
	return nil
}

// straight passes a body's pieces on unchanged.
type straight struct {
	c        *Conn
	s        *sending
	answered bool
}

var errAnswered = errors.New("the server has answered")

func (w *straight) Write(b []byte) (int, error) {
	var err error
	if w.answered, err = w.c.write(b, w.s); err == nil && !w.answered && w.c.listening(w.s) {
		w.answered, err = w.c.overhear()
	}
	if w.answered {
		err = errAnswered
	}
	if err != nil {
		return 0, err
	}
	w.s.left -= int64(len(b))
	return len(b), nil
}

func (c *Conn) writeAll(body io.WriterTo, s *sending) (bool, error) {
	w := &straight{c: c, s: s}
	_, err := body.WriteTo(w)
	switch {
	case w.answered:
		return true, nil
	case err == nil && s.left != 0:
		return false, &Error{BadBody, fmt.Errorf("the body ended %d bytes before it should", s.left)}
	}
	return false, err
}

// listening returns true if an early answer can be detected during a request.
func (c *Conn) listening(s *sending) bool {
	return s.piece != nil && c.probe != nil && c.options.TLS == nil
}

// overhear reads an answer that arrived before the whole request was sent, if there is one.
func (c *Conn) overhear() (bool, error) {
	if c.probe.quiet() {
		return false, nil
	}
	c.partial = true
	defer func() { c.partial = false }()
	for {
		if err := c.response.readHeader(); err != nil {
			return false, c.failed(err)
		}
		if c.response.Status >= 200 {
			return true, nil
		}
		if c.reader.Buffered() == 0 {
			return false, nil
		}
	}
}

// write sends bytes. It returns true if the server answered before it took them all.
func (c *Conn) write(b []byte, s *sending) (bool, error) {
	slice, listening := c.options.Timeout, c.listening(s)
	if listening && (slice == 0 || slice > writeSlice) {
		slice = writeSlice
	}
	blocked := time.Duration(0)
	for {
		if err := c.armWrite(slice); err != nil {
			return false, err
		}
		n, err := c.conn.Write(b)
		s.sent += int64(n)
		b = b[n:]
		if err == nil {
			return false, nil
		}
		if !listening || !isTimeout(err) || c.ctx.Err() != nil {
			return false, err
		}
		if blocked += slice; n > 0 {
			blocked = 0
		}
		if c.options.Timeout > 0 && blocked >= c.options.Timeout {
			return false, err
		}
		if answered, err := c.overhear(); answered || err != nil {
			return answered, err
		}
	}
}

// salvage reads an answer that the server sent before it closed the connection, such as a refusal
// of a large body. Without an answer it returns the write's error.
func (c *Conn) salvage(s *sending, err error) error {
	err = c.failed(err)
	if s.sent == 0 || !isBroken(err) {
		return err
	}
	c.partial = true
	defer func() { c.partial = false }()
	if c.receive() != nil {
		return err
	}
	return nil
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// appendHead appends a request's header.
func appendHead(b []byte, q *Request, address string) ([]byte, error) {
	host := q.Host
	if host == "" {
		host = address
	}
	if !isText(q.Method, '!') || !isText(q.Target, '!') || !isText(host, '!') || q.Target[0] != '/' {
		return b, fmt.Errorf("the request %.20q %.80q to %.80q has what cannot be in a request's first lines", q.Method,
			q.Target, host)
	}
	b = append(b, q.Method...)
	b = append(b, ' ')
	b = append(b, q.Target...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, host...)
	b = append(b, "\r\n"...)
	for _, f := range q.Fields {
		if !isText(f.Name, '!') || f.Value != "" && !isText(f.Value, ' ') {
			return b, fmt.Errorf("the header %.40q has a value that cannot be sent", f.Name)
		}
		b = append(b, f.Name...)
		b = append(b, ": "...)
		b = append(b, f.Value...)
		b = append(b, "\r\n"...)
	}
	switch {
	case q.Body != nil && q.Length < 0:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case q.Body != nil:
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, q.Length, 10)
		b = append(b, "\r\n"...)
	case q.Method == "PUT" || q.Method == "POST":
		b = append(b, "Content-Length: 0\r\n"...)
	}
	return append(b, "\r\n"...), nil
}

// isText returns true if s is not empty and all its bytes are printable, the first from `first` on.
func isText(s string, first byte) bool {
	for i := range len(s) {
		if s[i] < first || s[i] == 0x7f {
			return false
		}
	}
	return s != ""
}
