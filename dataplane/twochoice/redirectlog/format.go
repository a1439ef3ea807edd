package redirectlog

import (
	"encoding/binary"
	"hash/crc32"
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
//	frame   0 magic (4)  4 payload's length (4)  8 number, from 1 (8)  16 kind, always 1 (4)
//	        20 checksum of the first 20 bytes, the generation and the padded payload (4)
//	        24 payload (entries), padded by zeros
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
	frameKind   = 1
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

type header struct {
	version    uint32
	owner      uint32
	generation uint64
	first      uint64 // frames that the file began with
}

func (h header) encode() []byte {
	out := make([]byte, headerSize)
	copy(out, magic[:])
	binary.LittleEndian.PutUint32(out[8:], h.version)
	binary.LittleEndian.PutUint32(out[12:], h.owner)
	binary.LittleEndian.PutUint64(out[16:], h.generation)
	binary.LittleEndian.PutUint64(out[24:], h.first)
	binary.LittleEndian.PutUint32(out[52:], crc32.Checksum(out[:52], castagnoli))
	return out
}

// decodeHeader reads a header, and reports whether it is intact.
func decodeHeader(b []byte) (header, bool) {
	if len(b) < headerSize || [8]byte(b) != magic ||
		crc32.Checksum(b[:52], castagnoli) != binary.LittleEndian.Uint32(b[52:]) {
		return header{}, false
	}
	return header{
		version:    binary.LittleEndian.Uint32(b[8:]),
		owner:      binary.LittleEndian.Uint32(b[12:]),
		generation: binary.LittleEndian.Uint64(b[16:]),
		first:      binary.LittleEndian.Uint64(b[24:]),
	}, true
}

// frame is a frame that was read.
type frame struct {
	number  uint64
	payload []byte
	raw     []byte // the whole frame
}

func padded(n int) int { return (n + 7) &^ 7 }

// endFrame completes a frame: b has space for its header at `from`, and then the payload.
func endFrame(b []byte, from int, generation, number uint64) []byte {
	length := len(b) - from - frameHeader
	b = append(b, zeros[:padded(length)-length]...)
	f := b[from:]
	binary.LittleEndian.PutUint32(f[0:], frameMagic)
	binary.LittleEndian.PutUint32(f[4:], uint32(length))
	binary.LittleEndian.PutUint64(f[8:], number)
	binary.LittleEndian.PutUint32(f[16:], frameKind)
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

// decodeFrame reads the frame at the start of b, and reports whether it is intact.
func decodeFrame(b []byte, generation uint64) (frame, bool) {
	size := claimed(b)
	if size < frameHeader || size > len(b) || binary.LittleEndian.Uint32(b[4:]) > maxPayload ||
		binary.LittleEndian.Uint32(b[16:]) != frameKind ||
		frameSum(b[:size], generation) != binary.LittleEndian.Uint32(b[20:]) {
		return frame{}, false
	}
	length := binary.LittleEndian.Uint32(b[4:])
	return frame{binary.LittleEndian.Uint64(b[8:]), b[frameHeader : frameHeader+length], b[:size]}, true
}

// claimed returns the length that the frame at the start of b claims, plausible or not; 0 if there
// is no claim.
func claimed(b []byte) int {
	if len(b) < 8 || binary.LittleEndian.Uint32(b) != frameMagic {
		return 0
	}
	return frameHeader + padded(int(min(binary.LittleEndian.Uint32(b[4:]), maxPayload)))
}
