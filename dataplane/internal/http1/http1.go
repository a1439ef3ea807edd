// Package http1 is an HTTP/1.1 client for load generators. It spends as little CPU per request as
// it can, because a load generator competes with the system it measures. One goroutine owns a
// connection and itself writes, waits and reads; a request allocates nothing. The package leaves
// out what object stores do not use: pipelining, upgrades, HEAD, redirections, compression,
// trailers (read and dropped), continued header lines (refused).
//
// BenchmarkRequest compares its cost with that of net/http.
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

// Options apply to a connection.
type Options struct {
	// Timeout bounds connecting and each idle period of the server; 0 means no limit.
	Timeout time.Duration
	// TLS selects HTTPS; nil means HTTP.
	TLS *tls.Config
	// Dial replaces net.Dialer; nil means net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Field is a line of a header.
type Field struct{ Name, Value string }

// Request is a request. It is not changed and may be reused.
type Request struct {
	Method string
	// Target is the path and query as sent, escaped.
	Target string
	// Host is the Host header; empty means the connection's address.
	Host   string
	Fields []Field
	// Body is read once: Length bytes, or with Length -1 to its end, in chunks. nil: no body.
	Body   io.Reader
	Length int64
}

// Reason is the reason for a request's failure.
type Reason uint8

const (
	// Wrong is a request that cannot be written, such as one with a line break in a header.
	Wrong Reason = iota
	// BadBody is a request body that could not be read or that ended early.
	BadBody
	// Unreached is a failure to connect: nothing was sent.
	Unreached
	// Broken is a connection that ended before the answer did.
	Broken
	// Stalled is a server that did nothing for Options.Timeout.
	Stalled
	// Malformed is an answer that is not HTTP/1.1.
	Malformed
	// Ended is a context that ended; Err is its error.
	Ended
)

// Error is a request without a complete answer.
type Error struct {
	Reason Reason
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func malformed(format string, args ...any) error {
	return &Error{Malformed, fmt.Errorf("the answer is not HTTP/1.1: "+format, args...)}
}

// failed returns an *Error with the reason of a network error.
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
