package protocol

import "errors"

// DiskKind is what a disk operation does.
type DiskKind uint8

// The disk operations. The agent never has two under way that change the same bytes,
// and at most one of the log's.
const (
	// PutFragment makes Data durable as the fragment of Write: Object, Node (its home), From, To.
	PutFragment DiskKind = iota + 1
	// GetFragment reads From to To of the object out of the fragment of Write.
	GetFragment
	// DropFragment removes it; it need not be durable.
	DropFragment
	// WriteBase makes Data durable in the object's base, in place from From on. What a crash leaves of
	// it, in that range, is anything.
	WriteBase
	// ReadBase reads From to To of the object's base. Sums are all that have a byte of it: what was
	// written is compared with them, and what none is of is zeros.
	ReadBase
	// WriteLog appends Records to the log and makes them durable: all of them or, on ErrFull, none.
	WriteLog
	// CompactLog replaces the log by Records, durably; on ErrFull the old one stays.
	CompactLog
)

// DiskOp is a disk operation that an agent wants; it ends with a DiskDone of the same number.
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
	Sums []Sum // of what a WriteBase wrote
	Err  error // one sentence; it wraps ErrFull, ErrGone or ErrDamaged when that is what it is
}

// What a disk operation may fail with. After any other error the agent stops: what is on the disk is
// not known.
var (
	ErrFull    = errors.New("no space left")
	ErrGone    = errors.New("there is no such fragment")
	ErrDamaged = errors.New("what was written cannot be read back")
)

// Fragment is what a store has, as it finds it when it starts.
type Fragment struct {
	Object   string
	Write    WriteID
	Node     Node // its home
	From, To uint64
	// Damage says why nothing but Write, which its file's name tells, is known of it; else empty.
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
