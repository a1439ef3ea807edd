package sunrpc

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Message types, states and versions of RFC 5531.
const (
	MessageCall  = 0
	MessageReply = 1
	Version      = 2

	AuthNone = 0
	AuthUnix = 1
	AuthGSS  = 6

	maxAuth = 400 // bytes of a credential's or verifier's body
)

// Accept states of a reply.
const (
	Success              = 0
	ProgramUnavailable   = 1
	ProgramMismatch      = 2
	ProcedureUnavailable = 3
	GarbageArguments     = 4
	SystemError          = 5
)

// Call is a call's header and arguments, which are part of the record that was read.
type Call struct {
	XID, Program, Version, Procedure uint32
	// Flavor is the credential's flavor: with AuthGSS, arguments may be encrypted.
	Flavor    uint32
	Arguments []byte
}

// ErrNotACall means that a record is a message of another type.
var ErrNotACall = errors.New("the record is not a call")

// ParseCall parses a record (without its marks). A record that is too short or has a malformed
// credential is an error.
func ParseCall(record []byte) (Call, error) {
	d := NewDecoder(record)
	var c Call
	c.XID = d.Uint32()
	kind, version := d.Uint32(), d.Uint32()
	if !d.OK() {
		return c, fmt.Errorf("a record of %d bytes is no RPC message", len(record))
	}
	if kind != MessageCall {
		return c, ErrNotACall
	}
	if version != Version {
		return c, fmt.Errorf("a call has RPC version %d, not %d", version, Version)
	}
	c.Program, c.Version, c.Procedure = d.Uint32(), d.Uint32(), d.Uint32()
	c.Flavor = d.Uint32()
	d.Opaque(maxAuth)
	d.Uint32()
	d.Opaque(maxAuth)
	if !d.OK() {
		return c, fmt.Errorf("a call's header is cut off or its credential is longer than %d bytes", maxAuth)
	}
	c.Arguments = d.Rest()
	return c, nil
}

// AppendCall appends a record mark without a length, and a call's header with AUTH_UNIX as root.
// SealRecord sets the length once the arguments are appended.
func AppendCall(to []byte, xid, program, version, procedure uint32) Encoder {
	e := Encoder{append(to, 0, 0, 0, 0)}
	for _, v := range []uint32{xid, MessageCall, Version, program, version, procedure} {
		e.Uint32(v)
	}
	e.Uint32(AuthUnix)
	e.Uint32(28) // length of the credential that follows
	e.Uint32(0)
	e.String("hotbed")
	e.Uint32(0)
	e.Uint32(0)
	e.Uint32(0)
	e.Uint32(AuthNone)
	e.Uint32(0)
	return e
}

// SealRecord writes the mark of a record of one fragment that begins at `start`. The record's last
// `more` bytes are sent from elsewhere.
func SealRecord(record []byte, start, more int) {
	binary.BigEndian.PutUint32(record[start:], lastFragment|uint32(len(record)-start-4+more))
}

// AppendReply appends a record mark without a length and the header of an accepted reply.
func AppendReply(to []byte, xid, state uint32) Encoder {
	e := Encoder{append(to, 0, 0, 0, 0)}
	for _, v := range []uint32{xid, MessageReply, 0, AuthNone, 0, state} {
		e.Uint32(v)
	}
	return e
}

// ParseReply parses a reply and returns its results; a denied or unsuccessful call is an error.
func ParseReply(record []byte) (xid uint32, results Decoder, err error) {
	d := NewDecoder(record)
	xid = d.Uint32()
	kind, denied := d.Uint32(), d.Uint32()
	if d.OK() && kind == MessageReply && denied == 0 {
		d.Uint32()
		d.Opaque(maxAuth)
		state := d.Uint32()
		if d.OK() && state != Success {
			return xid, d, fmt.Errorf("the server answered with RPC state %d", state)
		}
	}
	switch {
	case !d.OK() || kind != MessageReply:
		return xid, d, fmt.Errorf("a record of %d bytes is no RPC reply", len(record))
	case denied != 0:
		return xid, d, errors.New("the server denied the call")
	}
	return xid, d, nil
}
