package filestore

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"syscall"

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

// header is a fragment's header: its identity and the checksums of its bytes.
type header struct {
	protocol.Fragment
	sums []uint32
}

// headerOf returns the header of the fragment that a PutFragment writes.
func headerOf(op protocol.DiskOp) header {
	h := header{Fragment: protocol.Fragment{Object: op.Object, Write: op.Write, Node: op.Node, From: op.From,
		To: op.To}}
	for at := 0; at < len(op.Data); at += blockSize {
		h.sums = append(h.sums, crc32.Checksum(op.Data[at:min(at+blockSize, len(op.Data))], castagnoli))
	}
	return h
}

// fragmentName returns the store's name of a fragment: "f.<client>.<count>", in hexadecimal.
func fragmentName(w protocol.WriteID) string { return fmt.Sprintf("f.%016x.%x", w.Client, w.Seq) }

// BaseName returns the store's name of an object's base: "b.<hash of the object's name>".
func BaseName(object string) string {
	sum := sha256.Sum256([]byte(object))
	return fmt.Sprintf("b.%x", sum[:16])
}

func blocks(n uint64) int { return int((n + blockSize - 1) / blockSize) }

// size returns the header's length in bytes.
func (h header) size() int { return fixed + len(h.Object) + 4*blocks(h.To-h.From) + 4 }

// upTo returns the number of bytes of the fragment, in whole blocks, up to an offset of the object.
func (h header) upTo(to uint64) int {
	return int(min(uint64(blocks(to-h.From))*blockSize, h.To-h.From))
}

// encode returns the stored form of the header.
func (h header) encode() []byte {
	b := append(make([]byte, 0, h.size()), magic[:]...)
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

// object is a fragment being read; its beginning was read ahead.
type object struct {
	objects Objects
	name    string
	begin   []byte
	whole   bool // begin holds the complete object
}

// readAhead opens an object by reading its first n bytes. If some of them are unreadable, the header
// may still be readable.
func readAhead(objects Objects, name string, n int) (*object, error) {
	b := make([]byte, n)
	read, err := objects.Read(name, b, 0)
	if errors.Is(err, syscall.EIO) {
		return &object{objects: objects, name: name}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", objects.Path(name), err)
	}
	return &object{objects, name, b[:read], read < n}, nil
}

// bytes returns n bytes from an offset.
func (o *object) bytes(offset, n int) ([]byte, error) {
	if offset+n <= len(o.begin) {
		return o.begin[offset : offset+n], nil
	}
	b, read := make([]byte, n), 0
	if !o.whole {
		var err error
		if read, err = o.objects.Read(o.name, b, uint64(offset)); err != nil {
			return nil, fmt.Errorf("%s cannot be read: %w", o.objects.Path(o.name), err)
		}
	}
	if read < n {
		return nil, o.damaged("it is cut off")
	}
	return b, nil
}

func (o *object) damaged(format string, args ...any) error {
	return fmt.Errorf("the fragment %s is damaged: %s: %w; restore it from a copy", o.objects.Path(o.name),
		fmt.Sprintf(format, args...), protocol.ErrDamaged)
}

// header reads the fragment's header. The error wraps protocol.ErrDamaged if the header is damaged.
func (o *object) header() (header, error) {
	var h header
	b, err := o.bytes(0, fixed)
	if err != nil {
		return h, err
	}
	length, from, to := binary.LittleEndian.Uint32(b[48:]), binary.LittleEndian.Uint64(b[32:]),
		binary.LittleEndian.Uint64(b[40:])
	switch v := binary.LittleEndian.Uint32(b[8:]); {
	case [8]byte(b[:8]) != magic:
		return h, o.damaged("it does not begin as a fragment does")
	case v != version:
		return h, o.damaged("it is of version %d, and this program knows version %d", v, version)
	case length > protocol.MaxName || to <= from || to-from > protocol.MaxData:
		return h, o.damaged("its header cannot be")
	}
	h.Node = protocol.Node(binary.LittleEndian.Uint32(b[12:]))
	h.Write = protocol.WriteID{Client: binary.LittleEndian.Uint64(b[16:]), Seq: binary.LittleEndian.Uint64(b[24:])}
	h.From, h.To = from, to
	rest, err := o.bytes(fixed, int(length)+4*blocks(to-from)+4)
	if err != nil {
		return h, err
	}
	h.Object = string(rest[:length])
	for sums := rest[length : len(rest)-4]; len(sums) > 0; sums = sums[4:] {
		h.sums = append(h.sums, binary.LittleEndian.Uint32(sums))
	}
	sum := crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, rest[:len(rest)-4])
	if sum != binary.LittleEndian.Uint32(rest[len(rest)-4:]) {
		return h, o.damaged("its header's checksum is wrong")
	}
	return h, nil
}

// listed reads the header of an existing fragment. If the header is damaged or another fragment's,
// only the write is known, from the name.
func listed(objects Objects, name string) (protocol.Fragment, error) {
	var h header
	o, err := readAhead(objects, name, headerAhead)
	if err == nil {
		h, err = o.header()
	}
	if err == nil && fragmentName(h.Write) != name {
		err = o.damaged("it holds fragment %v of %q", h.Write, h.Object)
	}
	err = known(protocol.GetFragment, err)
	if !errors.Is(err, protocol.ErrDamaged) {
		return h.Fragment, err
	}
	var w protocol.WriteID
	if _, bad := fmt.Sscanf(name, "f.%x.%x", &w.Client, &w.Seq); bad != nil || fragmentName(w) != name {
		return protocol.Fragment{}, fmt.Errorf("%s is not an agent's; give each agent a place of its own", objects.Path(name))
	}
	return protocol.Fragment{Write: w, Damage: err.Error()}, nil
}

// readPart does a GetFragment, after reading `ahead` bytes of the fragment first. It reads the bytes
// with the surrounding blocks for their checksums.
func readPart(objects Objects, ahead int, op protocol.DiskOp) ([]byte, error) {
	o, err := readAhead(objects, fragmentName(op.Write), ahead)
	if err != nil {
		return nil, err
	}
	h, err := o.header()
	if err != nil {
		return nil, err
	}
	if h.Object != op.Object || h.Write != op.Write || op.From < h.From || op.To > h.To || op.From >= op.To {
		return nil, o.damaged("it holds %d to %d of %q, fragment %v", h.From, h.To, h.Object, h.Write)
	}
	first := int(op.From-h.From) / blockSize
	start := first * blockSize
	b, err := o.bytes(h.size()+start, h.upTo(op.To)-start)
	if err != nil {
		return nil, err
	}
	for i := 0; i*blockSize < len(b); i++ {
		if crc32.Checksum(b[i*blockSize:min((i+1)*blockSize, len(b))], castagnoli) != h.sums[first+i] {
			return nil, o.damaged("the checksum of byte %d is wrong", h.From+uint64(start+i*blockSize))
		}
	}
	from := op.From - h.From - uint64(start)
	return b[from : from+op.To-op.From], nil
}
