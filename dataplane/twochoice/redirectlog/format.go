package redirectlog

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"time"

	"hotbed/dataplane/twochoice"
)

// Version is the version of the format.
//
// A log is a header and frames, little endian, at multiples of 8 bytes. A frame holds the entries
// of one append, and is written only when the previous frame is durable. So a crash can tear only
// the last frame. The file's initial frames were durable before the file got its name. Checksums
// are CRC-32C.
//
//	header  0 magic (8)  8 version (4)  12 OSD (4)  16 generation (8)  24 frames that the file was
//	        begun with (8)  32 reserved (20)  52 checksum (4)
//	frame   0 magic (4)  4 payload's length (4)  8 number, from 1 (8)  16 kind (4)
//	        20 checksum of the first 20 bytes, the generation and the padded payload (4)
//	        24 payload, padded by zeros
//	entry   length of the note (unsigned varint), the note, then a record, or 0 where there is none
//	record  kind (1), then unsigned varints: length of the name, the name, start, length, receipt,
//	        time (zigzag); redirected: OSD, fragment; returned: as of; held: OSD, fragment,
//	        start and length of the whole entry
//
// The file holds each 4 KiB of the log in two consecutive copies, the last padded by zeros. An
// append writes both copies of its blocks with one call and one sync. If a sector of one copy is
// damaged, the other copy proves how far the log was durable. A disk writes a sector of 512 bytes
// wholly or not at all, and unwritten bytes are zeros.
const Version = 2

const (
	headerSize  = 56
	frameHeader = 24
	frameNamed  = 16 // prefix with magic, length and number
	// maxPayload limits a frame; a torn tail is no longer than one frame.
	maxPayload = 1 << 20
	frameMagic = 0x4d524652 // "RFRM"
	blockSize  = 4096
	sectorSize = 512
)

// appendPairs appends each block of a block-aligned part of the log twice.
func appendPairs(out, log []byte) []byte {
	for len(log) > 0 {
		n := min(len(log), blockSize)
		for range 2 {
			out = append(out, log[:n]...)
			out = append(out, zeros[n:]...)
		}
		log = log[n:]
	}
	return out
}

var zeros [blockSize]byte

// inFile returns the file offset of the first copy of a log byte.
func inFile(offset int64) int64 { return 2*offset - offset%blockSize }

var magic = [8]byte{'H', 'B', 'R', 'E', 'D', 'I', 'R', '\n'}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// changesFrame is the only kind of frame.
const changesFrame = 1

type header struct {
	version    uint32
	owner      twochoice.Server
	generation uint64
	first      uint64 // frames that the file began with
}

func (h header) encode() []byte {
	out := make([]byte, headerSize)
	copy(out, magic[:])
	binary.LittleEndian.PutUint32(out[8:], h.version)
	binary.LittleEndian.PutUint32(out[12:], uint32(h.owner))
	binary.LittleEndian.PutUint64(out[16:], h.generation)
	binary.LittleEndian.PutUint64(out[24:], h.first)
	binary.LittleEndian.PutUint32(out[52:], crc32.Checksum(out[:52], castagnoli))
	return out
}

// decodeHeader reads a header; the problem is empty if the header is intact.
func decodeHeader(b []byte) (h header, problem string) {
	switch {
	case len(b) < headerSize:
		return h, "the header is cut off"
	case [8]byte(b) != magic:
		return h, "it does not begin as a redirect log does"
	case crc32.Checksum(b[:52], castagnoli) != binary.LittleEndian.Uint32(b[52:]):
		return h, "the header's checksum is wrong"
	}
	return header{
		version:    binary.LittleEndian.Uint32(b[8:]),
		owner:      twochoice.Server(binary.LittleEndian.Uint32(b[12:])),
		generation: binary.LittleEndian.Uint64(b[16:]),
		first:      binary.LittleEndian.Uint64(b[24:]),
	}, ""
}

// frame is a frame that was read.
type frame struct {
	number  uint64
	kind    uint32
	payload []byte
	raw     []byte // the whole frame
}

func padded(n int) int { return (n + 7) &^ 7 }

// beginFrame reserves space for a frame's header.
func beginFrame(b []byte) []byte { return append(b, make([]byte, frameHeader)...) }

// endFrame completes a frame that beginFrame began at `from`, after its payload was appended.
func endFrame(b []byte, from int, generation, number uint64, kind uint32) []byte {
	length := len(b) - from - frameHeader
	b = append(b, make([]byte, padded(length)-length)...)
	f := b[from:]
	binary.LittleEndian.PutUint32(f[0:], frameMagic)
	binary.LittleEndian.PutUint32(f[4:], uint32(length))
	binary.LittleEndian.PutUint64(f[8:], number)
	binary.LittleEndian.PutUint32(f[16:], kind)
	binary.LittleEndian.PutUint32(f[20:], frameSum(f, generation))
	return b
}

// frameSum returns a frame's checksum. It includes the generation, so that leftovers of an older
// file on the disk are not taken for frames.
func frameSum(f []byte, generation uint64) uint32 {
	var g [8]byte
	binary.LittleEndian.PutUint64(g[:], generation)
	sum := crc32.Update(crc32.Checksum(f[:20], castagnoli), castagnoli, g[:])
	return crc32.Update(sum, castagnoli, f[frameHeader:])
}

// decodeFrame reads the frame at the start of b; the problem is empty if the frame is intact.
func decodeFrame(b []byte, generation uint64) (f frame, problem string) {
	if len(b) < frameHeader {
		return f, "the header of a record is cut off"
	}
	if binary.LittleEndian.Uint32(b) != frameMagic {
		return f, "no record begins here"
	}
	length := binary.LittleEndian.Uint32(b[4:])
	if length > maxPayload {
		return f, "a record has an impossible length"
	}
	size := frameHeader + padded(int(length))
	if size > len(b) {
		return f, "a record is cut off"
	}
	if frameSum(b[:size], generation) != binary.LittleEndian.Uint32(b[20:]) {
		return f, "a record's checksum is wrong"
	}
	return frame{
		number:  binary.LittleEndian.Uint64(b[8:]),
		kind:    binary.LittleEndian.Uint32(b[16:]),
		payload: b[frameHeader : frameHeader+int(length)],
		raw:     b[:size],
	}, ""
}

func appendEntry(b []byte, e *Entry) []byte {
	b = append(binary.AppendUvarint(b, uint64(len(e.Note))), e.Note...)
	if e.Record.Kind == 0 {
		return append(b, 0)
	}
	return appendRecord(b, &e.Record)
}

// nextEntry reads the entry at the start of b and returns the rest.
func nextEntry(b []byte) (Entry, []byte, error) {
	r := &reader{b: b}
	length := r.number()
	if r.bad || length >= uint64(len(r.b)) {
		return Entry{}, nil, errRecord
	}
	e := Entry{Note: r.b[:length:length]}
	b = r.b[length:]
	if b[0] == 0 {
		return e, b[1:], nil
	}
	var err error
	e.Record, b, err = nextRecord(b)
	return e, b, err
}

func appendRecord(b []byte, r *twochoice.Record) []byte {
	b = append(b, byte(r.Kind))
	b = binary.AppendUvarint(b, uint64(len(r.Object)))
	b = append(b, r.Object...)
	b = appendRange(b, r.Range)
	b = binary.AppendUvarint(b, uint64(r.Receipt))
	b = binary.AppendVarint(b, int64(r.Time))
	switch r.Kind {
	case twochoice.Redirected, twochoice.Held:
		b = binary.AppendUvarint(b, uint64(r.Location.Server))
		b = binary.AppendUvarint(b, r.Location.Fragment)
		if r.Kind == twochoice.Held {
			b = appendRange(b, r.Origin)
		}
	case twochoice.Returned:
		b = binary.AppendUvarint(b, uint64(r.AsOf))
	}
	return b
}

func appendRange(b []byte, r twochoice.Range) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, r.Start), r.Len())
}

var errRecord = errors.New("a record has an impossible form")

// reader reads numbers up to the first incomplete number.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) signed() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) byteRange() twochoice.Range {
	start, length := r.number(), r.number()
	if length > math.MaxUint64-start {
		r.bad = true
		return twochoice.Range{}
	}
	return twochoice.Range{Start: start, End: start + length}
}

func (r *reader) location() twochoice.Location {
	server := r.number()
	if server > math.MaxInt32 {
		r.bad = true
	}
	return twochoice.Location{Server: twochoice.Server(server), Fragment: r.number()}
}

// nextRecord reads the record at the start of b and returns the rest.
func nextRecord(b []byte) (twochoice.Record, []byte, error) {
	out := twochoice.Record{Kind: twochoice.Kind(b[0])}
	r := &reader{b: b[1:]}
	name := r.number()
	if name > uint64(len(r.b)) {
		return out, nil, errRecord
	}
	out.Object, r.b = twochoice.Object(r.b[:name]), r.b[name:]
	out.Range = r.byteRange()
	out.Receipt = twochoice.Receipt(r.number())
	out.Time = time.Duration(r.signed())
	switch out.Kind {
	case twochoice.Redirected:
		out.Location = r.location()
	case twochoice.Home:
	case twochoice.Returned:
		out.AsOf = twochoice.Receipt(r.number())
	case twochoice.Held:
		out.Location, out.Origin = r.location(), r.byteRange()
	default:
		r.bad = true
	}
	if r.bad {
		return out, nil, errRecord
	}
	return out, r.b, nil
}
