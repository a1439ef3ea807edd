package sunrpc

import (
	"encoding/binary"
	"fmt"
)

const (
	lastFragment = 1 << 31
	markBytes    = 4
	// manyFragments bounds a record's fragments: fragments of one byte would burden the reader.
	manyFragments = 1024
)

// Reader splits a stream into records. The caller reads bytes into Space and reports them with
// Filled; Next returns complete records.
type Reader struct {
	// Most is the maximum length of a record, in bytes without marks.
	Most int

	buffer     []byte
	start, end int    // filled, unread range of the buffer
	whole      []byte // the earlier fragments of the record at the start, with room for a mark
	fragments  int
}

const firstSpace = 64 << 10

// Space returns the buffer for the next bytes, never empty. It grows with the bytes received, not
// with the length in a mark, and not beyond the need of the record at the start.
func (r *Reader) Space() []byte {
	have := r.end - r.start
	if have == 0 {
		r.start, r.end = 0, 0
	}
	if r.end == len(r.buffer) {
		to := r.buffer
		if have > len(to)/2 || len(to) == 0 {
			size := max(firstSpace, 2*have)
			if have >= markBytes {
				size = min(size, max(r.fragment(), have)+firstSpace)
			}
			to = make([]byte, size)
		}
		r.end = copy(to, r.buffer[r.start:r.end])
		r.start, r.buffer = 0, to
	}
	return r.buffer[r.end:]
}

// fragment returns the length of the fragment at the start, including its complete mark.
func (r *Reader) fragment() int {
	return markBytes + int(binary.BigEndian.Uint32(r.buffer[r.start:])&^lastFragment)
}

// Need returns about how much additional memory the record at the start needs until it is complete,
// or 0.
func (r *Reader) Need() int {
	switch {
	case r.fragments > 0, r.end-r.start >= markBytes && r.buffer[r.start]>>7 == 0:
		return 3 * r.Most // the fragments, with room to grow, and the last fragment
	case r.end-r.start >= markBytes && r.fragment() > firstSpace:
		return r.fragment() + firstSpace
	}
	return 0
}

// Shrink frees memory that only long records need, if nothing is buffered.
func (r *Reader) Shrink() {
	if r.Buffered() > 0 {
		return
	}
	r.whole = nil
	if len(r.buffer) > firstSpace {
		r.buffer, r.start, r.end = nil, 0, 0
	}
}

// Filled reports that n bytes have been read into Space.
func (r *Reader) Filled(n int) { r.end += n }

// Buffered returns the number of bytes that wait for the rest of their record.
func (r *Reader) Buffered() int {
	if r.fragments == 0 {
		return r.end - r.start
	}
	return r.end - r.start + len(r.whole)
}

// Next returns the next record in two forms: with a mark, as one fragment, and without. Both are
// valid until the next call of Next, Space or Shrink, and nil if no record is complete. A record
// that is too long is an error; the stream is then unusable.
func (r *Reader) Next() (marked, record []byte, err error) {
	for r.end-r.start >= markBytes {
		mark := binary.BigEndian.Uint32(r.buffer[r.start:])
		length, last := int(mark&^lastFragment), mark&lastFragment != 0
		if r.fragments == 0 {
			r.whole = r.whole[:0]
		}
		if have := max(len(r.whole)-markBytes, 0); length > r.Most-have {
			return nil, nil, fmt.Errorf("a record is longer than %d bytes", r.Most)
		}
		if r.end-r.start < markBytes+length {
			return nil, nil, nil
		}
		fragment := r.buffer[r.start : r.start+markBytes+length]
		if last && r.fragments == 0 {
			r.start += len(fragment)
			return fragment, fragment[markBytes:], nil
		}
		if r.fragments++; r.fragments > manyFragments {
			return nil, nil, fmt.Errorf("a record has more than %d fragments", manyFragments)
		}
		if len(r.whole) == 0 {
			r.whole = append(r.whole, 0, 0, 0, 0)
		}
		r.whole = append(r.whole, fragment[markBytes:]...)
		r.start += len(fragment)
		if last {
			r.fragments = 0
			SealRecord(r.whole, 0, 0)
			return r.whole, r.whole[markBytes:], nil
		}
	}
	return nil, nil, nil
}

// Follower finds the ends of records in a stream of replies that is forwarded unchanged. It keeps
// only their xid.
type Follower struct {
	mark      [markBytes]byte
	marked    int // bytes of the mark received so far
	left      int // bytes of the fragment still to come
	last      bool
	xid       uint32
	xidBytes  int
	inRecord  bool
	Malformed bool // a record ended before its xid
}

// Follow processes the next bytes of the stream. It calls ended with the xid of each record that
// ends in them.
func (f *Follower) Follow(bytes []byte, ended func(xid uint32)) {
	for len(bytes) > 0 {
		if f.marked < markBytes {
			n := copy(f.mark[f.marked:], bytes)
			f.marked += n
			bytes = bytes[n:]
			if f.marked < markBytes {
				return
			}
			mark := binary.BigEndian.Uint32(f.mark[:])
			f.left, f.last = int(mark&^lastFragment), mark&lastFragment != 0
			if !f.inRecord {
				f.inRecord, f.xid, f.xidBytes = true, 0, 0
			}
		}
		n := min(f.left, len(bytes))
		for i := 0; i < n && f.xidBytes < 4; i++ {
			f.xid = f.xid<<8 | uint32(bytes[i])
			f.xidBytes++
		}
		f.left -= n
		bytes = bytes[n:]
		if f.left > 0 {
			return
		}
		f.marked = 0
		if f.last {
			f.inRecord = false
			if f.xidBytes < 4 {
				f.Malformed = true
				return
			}
			ended(f.xid)
		}
	}
}

// BetweenRecords returns true if all bytes followed so far form whole records.
func (f *Follower) BetweenRecords() bool { return !f.inRecord && f.marked == 0 }

// Fragments splits a record into fragments of at most `most` bytes, with their marks.
func Fragments(record []byte, most int) []byte {
	var out []byte
	for {
		n := min(most, len(record))
		mark := uint32(n)
		if n == len(record) {
			mark |= lastFragment
		}
		out = binary.BigEndian.AppendUint32(out, mark)
		out = append(out, record[:n]...)
		if record = record[n:]; len(record) == 0 {
			return out
		}
	}
}
