package protocol

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"sort"
)

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

// Sum is the CRC-32C of bytes From to To of an object's base. The home keeps sums in its log, apart
// from the base, to detect lost and misplaced writes too.
type Sum struct {
	From, To uint64
	CRC      uint32
}

// summed is the maximum number of bytes per sum.
const summed = 64 << 10

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SumsOf returns the sums of a base's bytes from an offset on, in order and without gaps.
func SumsOf(from uint64, data []byte) []Sum {
	var out []Sum
	for len(data) > 0 {
		n := min(len(data), summed)
		out = append(out, Sum{from, from + uint64(n), crc32.Checksum(data[:n], castagnoli)})
		from, data = from+uint64(n), data[n:]
	}
	return out
}

// Of reports whether data has the checksum.
func (s Sum) Of(data []byte) bool { return crc32.Checksum(data, castagnoli) == s.CRC }

// overlapping returns the index range of the sums that overlap a range. Sums are in order and
// disjoint.
func overlapping(sums []Sum, from, to uint64) (int, int) {
	begin := sort.Search(len(sums), func(i int) bool { return sums[i].To > from })
	end := begin + sort.Search(len(sums)-begin, func(i int) bool { return sums[begin+i].From >= to })
	return begin, end
}

// inserted returns sums with more inserted in place of the sums that they overlap.
func inserted(sums, more []Sum) []Sum {
	for len(more) > 0 {
		n := 1 // insert contiguous sums at once
		for n < len(more) && more[n].From == more[n-1].To {
			n++
		}
		begin, end := overlapping(sums, more[0].From, more[n-1].To)
		sums = slices.Replace(sums, begin, end, more[:n]...)
		more = more[n:]
	}
	return sums
}

// encodeSums returns the encoding of sums in a note.
func encodeSums(sums []Sum) string {
	var b []byte
	for _, s := range sums {
		b = binary.AppendUvarint(binary.AppendUvarint(b, s.From), s.To-s.From)
		b = binary.LittleEndian.AppendUint32(b, s.CRC)
	}
	return string(b)
}

func decodeSums(text string) ([]Sum, error) {
	d := decoder{rest: []byte(text)}
	var out []Sum
	for len(d.rest) > 0 && d.err == nil {
		s := Sum{From: d.uint()}
		s.To = s.From + d.uint()
		if crc := d.take(4); d.err == nil {
			s.CRC = binary.LittleEndian.Uint32(crc)
			out = append(out, s)
		}
	}
	return out, d.err
}
