package cosbench

import (
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"time"
)

// poolSize is how many bytes there are to take objects' contents from.
const poolSize = 1 << 20

// pool is what objects are made of: made once, then only copied. An object begins anywhere in it.
type pool struct{ random, zero []byte }

func newPool(random *rand.Rand) *pool {
	p := &pool{make([]byte, poolSize), make([]byte, poolSize)}
	for i := 0; i < poolSize; i += 8 {
		v := random.Uint64()
		for j := range 8 {
			p.random[i+j] = byte(v >> (8 * j))
		}
	}
	return p
}

// The checksum that hashCheck puts at an object's end: guard, MD5 in hex, guard.
const (
	guard   = "!!!!"
	hashLen = int64(2*md5.Size + 2*len(guard))
)

// body is an object's content while it is sent. It notes when its first and last bytes were taken.
type body struct {
	source      []byte // of which the content is one turn after another, from start
	start       int
	size, at    int64
	tail        [hashLen]byte // the content's end when it is hashed
	tailLen     int64
	first, last time.Time
}

// reset makes the body one of size bytes.
func (b *body) reset(p *pool, random *rand.Rand, o *operationPlan, size int64) {
	*b = body{source: p.random, size: size}
	if o.zero {
		b.source = p.zero
	}
	b.start = random.IntN(poolSize)
	if o.hashCheck && size > hashLen {
		b.seal()
	}
}

// seal puts the checksum of what is before it at the end.
func (b *body) seal() {
	sum := md5.New()
	b.tailLen = 0
	b.size -= hashLen
	for b.at < b.size {
		part := b.part()
		_, _ = sum.Write(part) // never fails
		b.at += int64(len(part))
	}
	b.at, b.size, b.tailLen = 0, b.size+hashLen, hashLen
	copy(b.tail[:], checksum(sum))
}

func checksum(sum hash.Hash) string { return guard + hex.EncodeToString(sum.Sum(nil)) + guard }

// part is what comes next, as far as it lies in one piece.
func (b *body) part() []byte {
	if left := b.size - b.tailLen - b.at; left > 0 {
		from := int((int64(b.start) + b.at) % poolSize)
		return b.source[from : from+int(min(left, int64(poolSize-from)))]
	}
	return b.tail[hashLen-(b.size-b.at):]
}

func (b *body) took(n int) {
	b.last = time.Now()
	if b.first.IsZero() {
		b.first = b.last
	}
	b.at += int64(n)
}

// Read copies what comes next.
func (b *body) Read(into []byte) (int, error) {
	if b.at == b.size {
		return 0, io.EOF
	}
	n := 0
	for n < len(into) && b.at+int64(n) < b.size {
		b.at += int64(n)
		copied := copy(into[n:], b.part())
		b.at -= int64(n)
		n += copied
	}
	b.took(n)
	return n, nil
}

// WriteTo sends everything without copying it first.
func (b *body) WriteTo(w io.Writer) (int64, error) {
	from := b.at
	for b.at < b.size {
		n, err := w.Write(b.part())
		b.took(n)
		if err != nil {
			return b.at - from, err
		}
	}
	return b.at - from, nil
}

// Seek goes back, so that a request can be sent again.
func (b *body) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += b.at
	case io.SeekEnd:
		offset += b.size
	}
	if offset < 0 || offset > b.size {
		return b.at, errors.New("a place outside of the object")
	}
	b.at = offset
	return offset, nil
}

// Len is how many bytes are left.
func (b *body) Len() int { return int(b.size - b.at) }

// transfer is the time from the first byte taken to the last.
func (b *body) transfer() time.Duration { return b.last.Sub(b.first) }

// errHash is an object whose content does not have the checksum at its end.
var errHash = errors.New("the object's content does not match the checksum at its end")

// drain reads an answer to its end, through a buffer, and returns how many bytes there were.
func drain(from io.Reader, buffer []byte, hashCheck bool) (int64, error) {
	if hashCheck {
		return drainChecked(from, buffer)
	}
	var n int64
	for {
		read, err := from.Read(buffer)
		n += int64(read)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// drainChecked holds the last bytes back, for they may be a checksum. Objects without one pass, as
// in COSBench.
func drainChecked(from io.Reader, buffer []byte) (int64, error) {
	sum := md5.New()
	var n int64
	held := 0 // bytes at the buffer's beginning that are not in the sum
	for {
		read, err := from.Read(buffer[held:])
		n += int64(read)
		held += read
		if over := held - int(hashLen); over > 0 {
			_, _ = sum.Write(buffer[:over]) // never fails
			copy(buffer, buffer[over:held])
			held = int(hashLen)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return n, err
		}
	}
	if stored := string(buffer[:held]); n > hashLen && stored[:len(guard)] == guard && stored != checksum(sum) {
		return n, fmt.Errorf("%w (it says %s)", errHash, stored)
	}
	return n, nil
}
