package http1

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// Read reads the body. It returns io.EOF if the body is complete by the header, else an *Error.
func (r *Response) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if r.state == chunked && r.left == 0 {
		if err := r.nextChunk(); err != nil {
			return 0, r.broken(err)
		}
	}
	if r.state == done {
		return 0, io.EOF
	}
	if r.state != ending && int64(len(b)) > r.left {
		b = b[:r.left]
	}
	n, err := r.c.reader.Read(b)
	if r.state == ending {
		if err == io.EOF {
			r.finish()
			return n, io.EOF
		}
		if err != nil {
			err = r.broken(err)
		}
		return n, err
	}
	r.left -= int64(n)
	switch {
	case r.left == 0 && r.state == fixed:
		r.finish()
	case err != nil:
		return n, r.broken(err)
	}
	return n, nil
}

// nextChunk reads the line before a chunk; after the last chunk, it reads to the end of the body.
func (r *Response) nextChunk() error {
	if !r.first {
		if line, err := r.c.chunkLine(); err != nil || len(line) > 0 {
			return either(err, "a chunk is longer than it says")
		}
	}
	r.first = false
	line, err := r.c.chunkLine()
	if err != nil {
		return err
	}
	size, _, _ := bytes.Cut(line, []byte{';'})
	n, ok := number(bytes.TrimRight(size, " \t"), 16)
	if !ok {
		return malformed("a chunk's size is %.40q", line)
	}
	r.left = n
	if n > 0 {
		return nil
	}
	for read := 0; read < headerMax; {
		line, err := r.c.chunkLine()
		if err != nil {
			return err
		}
		if len(line) == 0 {
			r.finish()
			return nil
		}
		if err := new(header).take(line); err != nil {
			return err
		}
		read += len(line)
	}
	return malformed("what follows its last chunk is longer than %d bytes", headerMax)
}

// chunkLine reads a line that must end in CRLF: only an attacker omits the CR here.
func (c *Conn) chunkLine() ([]byte, error) {
	line, err := c.reader.ReadSlice('\n')
	if err != nil {
		return nil, tooLong(line, err)
	}
	if len(line) < 2 || line[len(line)-2] != '\r' {
		return nil, malformed("a chunk's line is %.40q", line)
	}
	return line[:len(line)-2], nil
}

func either(err error, text string) error {
	if err != nil {
		return err
	}
	return malformed("%s", text)
}

var scratch = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// WriteTo writes the rest of the body, in large pieces.
func (r *Response) WriteTo(w io.Writer) (int64, error) {
	b := scratch.Get().(*[64 << 10]byte)
	defer scratch.Put(b)
	total := int64(0)
	for {
		n, err := r.Read(b[:])
		if n > 0 {
			written, failed := w.Write(b[:n])
			total += int64(written)
			if failed != nil {
				return total, failed
			}
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// Close discards the body. It reads a short rest, so that the connection can be reused.
func (r *Response) Close() error {
	if r.state == ending || r.state == fixed && r.left > discardMax {
		r.abandon()
	}
	b := scratch.Get().(*[64 << 10]byte)
	defer scratch.Put(b)
	for total := 0; r.state != done; {
		n, err := r.Read(b[:])
		if total += n; err == nil && total > discardMax {
			r.abandon()
		}
	}
	return nil
}

// finish ends an answer, and closes the connection if it cannot be reused.
func (r *Response) finish() {
	r.state = done
	if !r.keep {
		r.c.disconnect()
	}
}

func (r *Response) abandon() {
	r.keep = false
	r.finish()
}

// broken closes the connection.
func (r *Response) broken(err error) error {
	left, state := r.left, r.state
	err = r.c.failed(err)
	r.abandon()
	if e := err.(*Error); e.Reason == Broken && state == fixed {
		return &Error{Broken, fmt.Errorf("the answer's body ended %d bytes before it should: %w", left, e.Err)}
	}
	return err
}
