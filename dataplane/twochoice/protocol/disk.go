package protocol

import "errors"

// DiskKind is the kind of a disk operation.
type DiskKind uint8

// The disk operations. An agent never runs two at once that change the same bytes, and at most one
// on the log.
const (
	// PutFragment makes Data durable as the fragment of Write: Object, Node (its home), From, To.
	PutFragment DiskKind = iota + 1
	// GetFragment reads From to To of the object out of the fragment of Write.
	GetFragment
	// DropFragment removes the fragment; the removal need not be durable.
	DropFragment
	// WriteBase makes Data durable in the object's base, in place from From on. After a crash the
	// content of the range is undefined.
	WriteBase
	// ReadBase reads From to To of the object's base. Sums are all sums that overlap the range, to
	// verify the bytes. Bytes without a sum are zeros.
	ReadBase
	// WriteLog appends Records to the log and makes them durable: all of them or, on ErrFull, none.
	WriteLog
	// CompactLog replaces the log with Records, durably; on ErrFull the old log stays.
	CompactLog
)

// DiskOp is an agent's disk operation; it ends with a DiskDone of the same number.
type DiskOp struct {
	Op       uint64
	Kind     DiskKind
	Object   string
	Write    WriteID
	Node     Node
	From, To uint64
	Data     []byte
	Sums     []Sum
	Records  []Record
}

// DiskDone is the end of a disk operation.
type DiskDone struct {
	Op   uint64
	Data []byte
	Sums []Sum // of the bytes of a WriteBase
	Err  error // one sentence; wraps ErrFull, ErrGone or ErrDamaged if applicable
}

// The expected errors of disk operations. After any other error the agent stops, because the disk's
// content is unknown.
var (
	ErrFull    = errors.New("no space left")
	ErrGone    = errors.New("there is no such fragment")
	ErrDamaged = errors.New("what was written cannot be read back")
)

// Fragment is a fragment that a store finds when it starts.
type Fragment struct {
	Object   string
	Write    WriteID
	Node     Node // its home
	From, To uint64
	// Damage is empty, or the reason why only Write, from the file's name, is known.
	Damage string
}

func codeOf(err error) Code {
	switch {
	case errors.Is(err, ErrFull):
		return Full
	case errors.Is(err, ErrGone):
		return Gone
	}
	return Failed
}
