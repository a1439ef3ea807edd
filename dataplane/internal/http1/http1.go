// Package http1 is a client of HTTP/1.1 for programs that make load: it spends as little CPU on a
// request as it can, since a load generator competes with what it measures. A connection belongs to
// one goroutine, which writes, waits and reads itself; nothing is allocated on the way of a request.
// What it leaves out is what object stores do not use: pipelining, upgrades, HEAD, redirections,
// compression, trailers (read and dropped), continued header lines (refused).
//
// docs/cosbench.md says what it costs beside net/http.
package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// Options hold for a connection.
type Options struct {
	// Timeout is how long connecting may take, and how long the other side may do nothing; 0: for ever.
	Timeout time.Duration
	// TLS makes it HTTPS; nil: HTTP.
	TLS *tls.Config
	// Dial replaces net.Dialer's; nil: that.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Field is a line of a header.
type Field struct{ Name, Value string }

// Request is what is asked. It is not changed, and may be used again.
type Request struct {
	Method string
	// Target is path and query as they go over the wire, escaped.
	Target string
	// Host is the header of that name; empty: the connection's address.
	Host   string
	Fields []Field
	// Body is read once, Length bytes of it; with Length -1 to its end, and sent in chunks. nil: none.
	Body   io.Reader
	Length int64
}

// Reason is why a request failed.
type Reason uint8

const (
	// Wrong is a request that cannot be written, such as one with a line break in a header.
	Wrong Reason = iota
	// BadBody is a request's body that could not be read, or ended early.
	BadBody
	// Unreached means that no connection could be made: nothing was sent.
	Unreached
	// Broken is a connection that ended before the answer did.
	Broken
	// Stalled is a server that did nothing for as long as Options.Timeout.
	Stalled
	// Malformed is an answer that is not HTTP/1.1.
	Malformed
	// Ended is a context that ended; Err is its error.
	Ended
)

// Error is a request without a whole answer.
type Error struct {
	Reason Reason
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap makes the cause comparable.
func (e *Error) Unwrap() error { return e.Err }

func malformed(format string, args ...any) error {
	return &Error{Malformed, fmt.Errorf("the answer is not HTTP/1.1: "+format, args...)}
}

// failed names the reason of an error of the network's.
func (c *Conn) failed(err error) error {
	var known *Error
	if errors.As(err, &known) {
		return err
	}
	if ended := c.ctx.Err(); ended != nil {
		return &Error{Ended, ended}
	}
	var network net.Error
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &network) && network.Timeout() {
		return &Error{Stalled, fmt.Errorf("the server did nothing for %v", c.options.Timeout)}
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return &Error{Broken, fmt.Errorf("the connection broke: %w", err)}
}
