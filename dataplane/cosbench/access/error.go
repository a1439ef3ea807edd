package access

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
)

// The kinds of failure. An operation's failures are counted by kind.
const (
	NotFound = "not-found" // no such container or object
	Auth     = "auth"      // who asks is not let in (401, 403); a session may be renewed
	Timeout  = "timeout"   // no answer in time
	Refused  = "refused"   // nobody listens there, or the connection was broken
	Server   = "server"    // the store says it failed (5xx), or answers what its protocol does not know
	Client   = "client"    // the request was wrong (other 4xx), or this side failed
)

// Kinds are all kinds of failure, in the order in which they are shown.
func Kinds() []string { return []string{NotFound, Auth, Timeout, Refused, Server, Client} }

// Error is a failed request to a store or to whoever authenticates for it.
type Error struct {
	Kind    string // one of Kinds
	Status  int    // the HTTP status, or librados's errno; 0: there was no answer
	Message string // one sentence without secrets
}

func (e *Error) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("%s (%s, %d)", e.Message, e.Kind, e.Status)
	}
	return fmt.Sprintf("%s (%s)", e.Message, e.Kind)
}

// KindOf says of which kind any error is: an Error's own kind, else what the network's or the
// context's error tells, else Client.
func KindOf(err error) string {
	var known *Error
	if errors.As(err, &known) {
		return known.Kind
	}
	var network net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &network) && network.Timeout() {
		return Timeout
	}
	if errors.As(err, &network) {
		return Refused
	}
	return Client
}
