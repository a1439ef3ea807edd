// Package simbridge serves a simulation to a program that drives it over a pipe.
//
// A message is a frame: the length of its header (4 bytes, little endian), the header in JSON, and
// blocks of numbers. The header announces the blocks under "blocks" as {name, type, count}. Blocks
// are consecutive, little endian f64, i64, i32 or u8. The driver's messages have no blocks.
package simbridge

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// maxHeader is the longest header that is read.
const maxHeader = 64 << 20

// block is an array that follows a header.
type block struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Count int    `json:"count"`
	data  []byte
}

// reply is the answer to a request.
type reply struct {
	OK      bool    `json:"ok"`
	Message string  `json:"message,omitempty"`
	Result  any     `json:"result,omitempty"`
	Blocks  []block `json:"blocks,omitempty"`
}

func (r *reply) floats(name string, values []float64) {
	data := make([]byte, 0, 8*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint64(data, math.Float64bits(v))
	}
	r.Blocks = append(r.Blocks, block{name, "f64", len(values), data})
}

func (r *reply) longs(name string, values []int64) {
	data := make([]byte, 0, 8*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint64(data, uint64(v))
	}
	r.Blocks = append(r.Blocks, block{name, "i64", len(values), data})
}

func (r *reply) ints(name string, values []int32) {
	data := make([]byte, 0, 4*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, uint32(v))
	}
	r.Blocks = append(r.Blocks, block{name, "i32", len(values), data})
}

func (r *reply) bytes(name string, values []byte) {
	r.Blocks = append(r.Blocks, block{name, "u8", len(values), values})
}

// readFrame reads a request's header; it returns io.EOF if the driver has gone.
func readFrame(in *bufio.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(in, size[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(size[:])
	if n > maxHeader {
		return nil, fmt.Errorf("a request of %d bytes, allowed are %d", n, maxHeader)
	}
	header := make([]byte, n)
	if _, err := io.ReadFull(in, header); err != nil {
		return nil, fmt.Errorf("a request that was cut off: %w", err)
	}
	return header, nil
}

func writeFrame(out *bufio.Writer, r *reply) error {
	header, err := json.Marshal(r)
	if err != nil {
		return err
	}
	var size [4]byte
	binary.LittleEndian.PutUint32(size[:], uint32(len(header)))
	if _, err := out.Write(size[:]); err != nil {
		return err
	}
	if _, err := out.Write(header); err != nil {
		return err
	}
	for _, b := range r.Blocks {
		if _, err := out.Write(b.data); err != nil {
			return err
		}
	}
	return out.Flush()
}
