package filestore

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"

	"hotbed/dataplane/twochoice/protocol"
)

// A fragment is a header, then the bytes:
//
//	0 magic (8)  8 version (4)  12 home (4)  16 client (8)  24 count (8)  32 from (8)  40 to (8)
//	48 length of the name (4)  52 the name, then a CRC-32C for each block of the bytes (4 each),
//	then one CRC-32C of the whole header (4)
//
// The format is the same in a file of a folder and in an object of a pool (radosstore).
const (
	version = 1
	fixed   = 52
	// blockSize is the number of bytes per checksum.
	blockSize = 64 << 10
)

var (
	magic      = [8]byte{'H', 'B', 'F', 'R', 'A', 'G', 'M', '\n'}
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// Header is a fragment's header: its identity and the checksums of its bytes.
type Header struct {
	protocol.Fragment
	sums []uint32
}

// HeaderOf returns the header of the fragment that a PutFragment writes.
func HeaderOf(op protocol.DiskOp) Header {
	h := Header{Fragment: protocol.Fragment{Object: op.Object, Write: op.Write, Node: op.Node, From: op.From,
		To: op.To}}
	for at := 0; at < len(op.Data); at += blockSize {
		h.sums = append(h.sums, crc32.Checksum(op.Data[at:min(at+blockSize, len(op.Data))], castagnoli))
	}
	return h
}

func fileName(kind string, w protocol.WriteID) string {
	return fmt.Sprintf("%s.%016x.%x", kind, w.Client, w.Seq)
}

// FragmentName returns the store's name of a fragment: "f.<client>.<count>", in hexadecimal.
func FragmentName(w protocol.WriteID) string { return fileName("f", w) }

// BaseName returns the store's name of an object's base: "b.<hash of the object's name>".
func BaseName(object string) string {
	sum := sha256.Sum256([]byte(object))
	return fmt.Sprintf("b.%x", sum[:16])
}

// Name returns the store's name of the fragment.
func (h Header) Name() string { return FragmentName(h.Write) }

func blocks(n uint64) int { return int((n + blockSize - 1) / blockSize) }

// Size returns the header's length in bytes.
func (h Header) Size() int { return fixed + len(h.Object) + 4*blocks(h.To-h.From) + 4 }

// Encode returns the stored form of the header.
func (h Header) Encode() []byte {
	b := append(make([]byte, 0, h.Size()), magic[:]...)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.Node))
	for _, v := range [...]uint64{h.Write.Client, h.Write.Seq, h.From, h.To} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(h.Object)))
	b = append(b, h.Object...)
	for _, sum := range h.sums {
		b = binary.LittleEndian.AppendUint32(b, sum)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func damaged(path, problem string) error {
	return fmt.Errorf("the fragment %s is damaged: %s: %w; restore it from a copy", path, problem,
		protocol.ErrDamaged)
}

func unreadable(path string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return damaged(path, "it is cut off")
	}
	return fmt.Errorf("%s cannot be read: %w", path, err)
}

// ReadHeader reads a fragment's header; `path` is the fragment's name in messages. The error wraps
// protocol.ErrDamaged if the header is damaged.
func ReadHeader(file io.ReaderAt, path string) (Header, error) {
	var h Header
	b := make([]byte, fixed)
	if err := readFull(file, b, 0); err != nil {
		return h, unreadable(path, err)
	}
	length, from, to := binary.LittleEndian.Uint32(b[48:]), binary.LittleEndian.Uint64(b[32:]),
		binary.LittleEndian.Uint64(b[40:])
	switch v := binary.LittleEndian.Uint32(b[8:]); {
	case [8]byte(b[:8]) != magic:
		return h, damaged(path, "it does not begin as a fragment does")
	case v != version:
		return h, damaged(path, fmt.Sprintf("it is of version %d, and this program knows version %d", v, version))
	case length > protocol.MaxName || to <= from || to-from > protocol.MaxData:
		return h, damaged(path, "its header cannot be")
	}
	h.Node = protocol.Node(binary.LittleEndian.Uint32(b[12:]))
	h.Write = protocol.WriteID{Client: binary.LittleEndian.Uint64(b[16:]), Seq: binary.LittleEndian.Uint64(b[24:])}
	h.From, h.To = from, to
	rest := make([]byte, int(length)+4*blocks(to-from)+4)
	if err := readFull(file, rest, fixed); err != nil {
		return h, unreadable(path, err)
	}
	h.Object = string(rest[:length])
	for sums := rest[length : len(rest)-4]; len(sums) > 0; sums = sums[4:] {
		h.sums = append(h.sums, binary.LittleEndian.Uint32(sums))
	}
	sum := crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, rest[:len(rest)-4])
	if sum != binary.LittleEndian.Uint32(rest[len(rest)-4:]) {
		return h, damaged(path, "its header's checksum is wrong")
	}
	return h, nil
}

// Listed returns the fragment for a name and the result of reading its header. If the header is
// damaged or another fragment's, only the write is known, from the name.
func Listed(name, path string, h Header, err error) (protocol.Fragment, error) {
	if err == nil && h.Name() != name {
		err = damaged(path, fmt.Sprintf("it holds fragment %v of %q", h.Write, h.Object))
	}
	err = Known(protocol.GetFragment, err)
	if !errors.Is(err, protocol.ErrDamaged) {
		return h.Fragment, err
	}
	var w protocol.WriteID
	if _, bad := fmt.Sscanf(name, "f.%x.%x", &w.Client, &w.Seq); bad != nil || FragmentName(w) != name {
		return protocol.Fragment{}, fmt.Errorf("%s is not an agent's; give each agent a place of its own", path)
	}
	return protocol.Fragment{Write: w, Damage: err.Error()}, nil
}

// ReadBase does a ReadBase operation. `path` is the base's name in messages; `read` reads the base
// from an offset, up to its end.
func ReadBase(op protocol.DiskOp, path string, read func(b []byte, offset uint64) error) ([]byte, error) {
	out := make([]byte, op.To-op.From)
	if len(op.Sums) == 0 {
		return out, nil
	}
	start := op.Sums[0].From
	b := make([]byte, op.Sums[len(op.Sums)-1].To-start)
	if err := read(b, start); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, s := range op.Sums {
		part := b[s.From-start : s.To-start]
		if !s.Of(part) {
			return nil, fmt.Errorf("the base %s of %q is damaged: the checksum of bytes %d to %d is wrong: %w; restore "+
				"it from a copy", path, op.Object, s.From, s.To, protocol.ErrDamaged)
		}
		from, to := max(s.From, op.From), min(s.To, op.To)
		copy(out[from-op.From:], part[from-s.From:to-s.From])
	}
	return out, nil
}

// Read reads the bytes for a GetFragment, with the surrounding blocks for their checksums.
func (h Header) Read(file io.ReaderAt, path string, op protocol.DiskOp) ([]byte, error) {
	if h.Object != op.Object || h.Write != op.Write || op.From < h.From || op.To > h.To || op.From >= op.To {
		return nil, damaged(path, fmt.Sprintf("it holds %d to %d of %q, fragment %v", h.From, h.To, h.Object, h.Write))
	}
	first := (op.From - h.From) / blockSize
	start := first * blockSize
	end := min((uint64(blocks(op.To-h.From)))*blockSize, h.To-h.From)
	b := make([]byte, end-start)
	if err := readFull(file, b, int64(h.Size())+int64(start)); err != nil {
		return nil, unreadable(path, err)
	}
	for i := 0; i*blockSize < len(b); i++ {
		if crc32.Checksum(b[i*blockSize:min((i+1)*blockSize, len(b))], castagnoli) != h.sums[int(first)+i] {
			return nil, damaged(path, fmt.Sprintf("the checksum of byte %d is wrong", h.From+start+uint64(i)*blockSize))
		}
	}
	from := op.From - h.From - start
	return b[from : from+op.To-op.From], nil
}

func readFull(file io.ReaderAt, b []byte, offset int64) error {
	n, err := file.ReadAt(b, offset)
	if n == len(b) {
		return nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// Begin returns the number of leading bytes of a fragment that hold its header and the object's
// bytes up to an offset, in whole blocks.
func (h Header) Begin(to uint64) int {
	return h.Size() + int(min(uint64(blocks(to-h.From))*blockSize, h.To-h.From))
}
