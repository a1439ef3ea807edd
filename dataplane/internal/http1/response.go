package http1

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// Response is an answer. Its body must be read with Read or WriteTo, and closed.
type Response struct {
	Status int
	// Length is the body's length in bytes, or -1 if only the connection's end shows it.
	Length int64

	c      *Conn
	lines  []byte // the header; each line ends in '\n'
	reason []byte
	keep   bool // the connection can be reused
	state  state
	left   int64 // bytes left of the body or its chunk
	first  bool  // no chunk has arrived yet
}

type state uint8

const (
	done    state = iota // all was read
	fixed                // as many bytes as the header says
	chunked              // chunks
	ending               // all until the connection's end
)

const (
	// headerMax is the maximum length of an answer's header, in bytes.
	headerMax = 256 << 10
	// discardMax is the most of an unwanted body that is read to keep the connection, in bytes.
	discardMax = 256 << 10
	interimMax = 20
)

// Reason returns the reason phrase after the status.
func (r *Response) Reason() string { return string(r.reason) }

// Header returns the first header of that name, or "" if there is none.
func (r *Response) Header(name string) string {
	for lines := r.lines; ; {
		line, rest, found := bytes.Cut(lines, []byte{'\n'})
		if !found {
			return ""
		}
		if key, value, _ := bytes.Cut(line, []byte{':'}); len(key) == len(name) && equalFold(key, name) {
			return string(bytes.Trim(value, " \t"))
		}
		lines = rest
	}
}

func equalFold(b []byte, s string) bool {
	if len(b) != len(s) {
		return false
	}
	for i := range b {
		if lower(b[i]) != lower(s[i]) {
			return false
		}
	}
	return true
}

func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		b += 'a' - 'A'
	}
	return b
}

// receive reads an answer's header and skips interim answers (100 Continue).
func (c *Conn) receive() error {
	for range interimMax {
		if err := c.response.readHeader(); err != nil {
			return c.failed(err)
		}
		if c.response.Status >= 200 {
			return nil
		}
	}
	return malformed("it has more than %d interim answers", interimMax)
}

func (r *Response) readHeader() error {
	line, err := r.c.line()
	if err != nil {
		return err
	}
	minor, err := r.statusLine(line)
	if err != nil {
		return err
	}
	h := header{length: -1, keep: minor > 0}
	r.lines = r.lines[:0]
	for {
		line, err := r.c.line()
		if err != nil {
			return err
		}
		if len(line) == 0 {
			break
		}
		if len(r.lines)+len(line) > headerMax {
			return malformed("its header is longer than %d bytes", headerMax)
		}
		r.lines = append(append(r.lines, line...), '\n')
		if err := h.take(line); err != nil {
			return err
		}
	}
	r.keep, r.Length = h.keep, h.length
	r.left, r.first = h.length, true
	switch {
	case r.Status == 101:
		return malformed("it changes the protocol")
	case r.Status < 200:
		r.Length, r.state = 0, done
	case r.Status == 204 || r.Status == 304:
		r.Length = 0
		r.finish()
	case h.chunked && minor == 0:
		return malformed("it is of version 1.0 and has chunks")
	case h.chunked:
		r.Length, r.left, r.state = -1, 0, chunked
	case h.length < 0:
		r.keep, r.state = false, ending
	case h.length == 0:
		r.finish()
	default:
		r.state = fixed
	}
	return nil
}

// statusLine parses "HTTP/1.1 200 OK" and returns the version's second number.
func (r *Response) statusLine(line []byte) (int, error) {
	const begin = "HTTP/1."
	if len(line) < len("HTTP/1.1 200") || string(line[:len(begin)]) != begin || line[8] != ' ' ||
		line[7] != '0' && line[7] != '1' || len(line) > 12 && line[12] != ' ' {
		return 0, malformed("it begins with %.40q", line)
	}
	r.Status = 0
	for _, digit := range line[9:12] {
		if digit < '0' || digit > '9' {
			return 0, malformed("it begins with %.40q", line)
		}
		r.Status = r.Status*10 + int(digit-'0')
	}
	if r.Status < 100 {
		return 0, malformed("its status is %d", r.Status)
	}
	r.reason = append(r.reason[:0], line[min(13, len(line)):]...)
	return int(line[7] - '0'), nil
}

// header holds what a header says about the body and the connection.
type header struct {
	length  int64 // -1: not given
	chunked bool
	keep    bool
}

func (h *header) take(line []byte) error {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 {
		return malformed("its header has the line %.40q", line)
	}
	for _, b := range line[:colon] {
		if !isToken(b) {
			return malformed("its header has the line %.40q", line)
		}
	}
	for _, b := range line[colon+1:] {
		if b < ' ' && b != '\t' || b == 0x7f {
			return malformed("its header has the line %.40q", line)
		}
	}
	name, value := line[:colon], bytes.Trim(line[colon+1:], " \t")
	switch len(name) {
	case len("Connection"):
		if equalFold(name, "Connection") {
			h.connection(value)
		}
	case len("Content-Length"):
		if !equalFold(name, "Content-Length") {
			break
		}
		n, ok := number(value, 10)
		if !ok || h.length >= 0 && h.length != n {
			return malformed("its Content-Length is %.40q", value)
		}
		h.length = n
	case len("Transfer-Encoding"):
		if !equalFold(name, "Transfer-Encoding") {
			break
		}
		if h.chunked || !equalFold(value, "chunked") {
			return malformed("its Transfer-Encoding is %.40q", value)
		}
		h.chunked = true
	}
	return nil
}

func (h *header) connection(value []byte) {
	for option := range bytes.SplitSeq(value, []byte{','}) {
		switch option = bytes.Trim(option, " \t"); {
		case equalFold(option, "close"):
			h.keep = false
		case equalFold(option, "keep-alive"):
			h.keep = true
		}
	}
}

// isToken returns true if a byte may be in a header's name (RFC 9110, 5.6.2).
func isToken(b byte) bool {
	switch {
	case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9':
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0
}

// number parses digits only.
func number(digits []byte, base int64) (int64, bool) {
	if len(digits) == 0 {
		return 0, false
	}
	n := int64(0)
	for _, b := range digits {
		d := int64(99)
		switch b = lower(b); {
		case '0' <= b && b <= '9':
			d = int64(b - '0')
		case 'a' <= b && b <= 'f':
			d = int64(b-'a') + 10
		}
		if d >= base || n > (1<<62-d)/base {
			return 0, false
		}
		n = n*base + d
	}
	return n, true
}

// line reads a line without its end; the result is valid until the next read.
func (c *Conn) line() ([]byte, error) {
	line, err := c.reader.ReadSlice('\n')
	if err != nil {
		return nil, tooLong(line, err)
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte{'\r'}), nil
}

func tooLong(line []byte, err error) error {
	if len(line) >= readAhead {
		return malformed("it has a line of more than %d bytes", readAhead)
	}
	return err
}

// Excerpt reads up to n bytes of an error's body and closes the body.
func (r *Response) Excerpt(n int) []byte {
	b := make([]byte, n)
	read, _ := io.ReadFull(r, b)
	_ = r.Close()
	return b[:read]
}

// String returns the status for messages.
func (r *Response) String() string { return fmt.Sprintf("%d %s", r.Status, r.reason) }
