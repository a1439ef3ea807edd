// Package nfs3 has what Hotbed needs of NFS version 3 and its mount protocol (RFC 1813).
package nfs3

import "hotbed/dataplane/internal/sunrpc"

// Programs and versions.
const (
	Program      = 100003
	Version      = 3
	MountProgram = 100005
	MountVersion = 3
)

// Procedures of NFS.
const (
	ProcNull = iota
	ProcGetattr
	ProcSetattr
	ProcLookup
	ProcAccess
	ProcReadlink
	ProcRead
	ProcWrite
	ProcCreate
	ProcMkdir
	ProcSymlink
	ProcMknod
	ProcRemove
	ProcRmdir
	ProcRename
	ProcLink
	ProcReaddir
	ProcReaddirplus
	ProcFsstat
	ProcFsinfo
	ProcPathconf
	ProcCommit
)

// Procedures of the mount protocol.
const (
	MountNull = iota
	MountMnt
	MountDump
	MountUmnt
	MountUmntall
	MountExport
)

// Limits of the protocol.
const (
	MaxHandle = 64
	MaxName   = 255
	MaxPath   = 1024
)

// FileSync is the stability of a write that is durable when it is answered.
const FileSync = 2

// Status is a procedure's status; 0 is success.
type Status uint32

// The statuses in use.
const (
	OK             Status = 0
	ErrNoEntry     Status = 2
	ErrIO          Status = 5
	ErrAccess      Status = 13
	ErrExists      Status = 17
	ErrNotDir      Status = 20
	ErrIsDir       Status = 21
	ErrInvalid     Status = 22
	ErrTooBig      Status = 27
	ErrNoSpace     Status = 28
	ErrReadOnly    Status = 30
	ErrNameTooLong Status = 63
	ErrNotEmpty    Status = 66
	ErrStale       Status = 70
	ErrBadHandle   Status = 10001
	ErrNotSupp     Status = 10004
)

// Kind separates the procedures that carry data from all others.
type Kind uint8

// The kinds.
const (
	Other Kind = iota
	Read
	Write
)

// Operation is the part of a call that a scheduler needs.
type Operation struct {
	Kind   Kind
	Handle []byte // a part of the call
	Offset uint64
	Count  uint32
	// Reply is the approximate maximum length of the reply, in bytes.
	Reply int
}

const (
	smallReply = 1 << 10  // header, attributes before and after, and anything else without data
	listReply  = 64 << 10 // a list with unreadable arguments
)

// Describe parses the arguments of an NFS version 3 call. Unreadable arguments, such as those that
// RPCSEC_GSS encrypted, give an operation of another kind.
func Describe(c sunrpc.Call) Operation {
	op := Operation{Reply: smallReply}
	if c.Program != Program || c.Version != Version {
		op.Reply = listReply
		return op
	}
	if c.Flavor == sunrpc.AuthGSS {
		op.Reply = 1 << 20
		return op
	}
	d := sunrpc.NewDecoder(c.Arguments)
	switch c.Procedure {
	case ProcRead, ProcWrite:
		handle, offset, count := d.Opaque(MaxHandle), d.Uint64(), d.Uint32()
		if !d.OK() {
			return op
		}
		op.Kind, op.Handle, op.Offset, op.Count = Read, handle, offset, count
		if c.Procedure == ProcRead {
			op.Reply += int(count)
			return op
		}
		op.Kind = Write
		d.Uint32() // stability
		op.Count = min(count, d.Uint32(), uint32(len(d.Rest())))
	case ProcReadlink:
		op.Reply += 4 * MaxPath
	case ProcReaddir, ProcReaddirplus:
		d.Opaque(MaxHandle)
		d.Uint64() // cookie
		d.Uint64() // cookie verifier
		if c.Procedure == ProcReaddirplus {
			d.Uint32() // bytes of names, included in the next number
		}
		if count := d.Uint32(); d.OK() {
			op.Reply += int(count)
		} else {
			op.Reply += listReply
		}
	}
	return op
}
