package http1

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
)

const (
	// pieceSize is the size of one write of a request, in bytes: most small objects fit.
	pieceSize = 128 << 10
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

func (s *sending) short() error {
	return fmt.Errorf("the body ended %d bytes before it should", s.left)
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
		err = s.short()
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

// send writes the request and reads the answer's header.
func (c *Conn) send(s *sending) error {
	for b := s.begin; ; {
		if err := c.write(b, s); err != nil {
			return c.salvage(s, err)
		}
		if s.whole {
			return c.receive()
		}
		if memory := s.memory(); memory != nil {
			if _, err := memory.WriteTo(straight{c, s}); err != nil {
				return c.salvage(s, err)
			}
			if s.left != 0 {
				return &Error{BadBody, s.short()}
			}
			return c.receive()
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
	c *Conn
	s *sending
}

func (w straight) Write(b []byte) (int, error) {
	if err := w.c.write(b, w.s); err != nil {
		return 0, err
	}
	w.s.left -= int64(len(b))
	return len(b), nil
}

// write sends bytes; the server may take them slowly, but must take some within Timeout.
func (c *Conn) write(b []byte, s *sending) error {
	for {
		if err := c.armWrite(); err != nil {
			return err
		}
		n, err := c.conn.Write(b)
		s.sent += int64(n)
		if b = b[n:]; n == 0 || !errors.Is(err, os.ErrDeadlineExceeded) || c.ctx.Err() != nil {
			return err
		}
	}
}

// salvage reads an answer that the server sent without taking the whole request, such as a refusal of
// a large body. Without an answer it returns the write's error.
func (c *Conn) salvage(s *sending, err error) error {
	err = c.failed(err)
	var known *Error // a body may have wrapped it
	unheard := errors.As(err, &known) && known.Reason == Stalled && c.probe != nil && !c.probe.quiet()
	if s.sent == 0 || !isBroken(err) && !unheard {
		return err
	}
	if c.receive() != nil {
		return err
	}
	c.response.keep = false
	if c.response.state == done {
		c.disconnect()
	}
	return nil
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
