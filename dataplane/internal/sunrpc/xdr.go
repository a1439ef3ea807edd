// Package sunrpc has what Hotbed needs of ONC RPC version 2 over TCP (RFC 5531) and XDR (RFC 4506):
// records and their fragments, call and reply headers, and the basic types.
package sunrpc

import "encoding/binary"

// Decoder reads XDR values from the front of a message. After the first incomplete value it has
// failed, and every further value is zero.
type Decoder struct {
	rest   []byte
	failed bool
}

// NewDecoder returns a decoder of a message.
func NewDecoder(message []byte) Decoder { return Decoder{rest: message} }

// OK returns true if all values so far were complete.
func (d *Decoder) OK() bool { return !d.failed }

// Rest returns the unread bytes.
func (d *Decoder) Rest() []byte { return d.rest }

func (d *Decoder) take(n int) []byte {
	if d.failed || n < 0 || n > len(d.rest) {
		d.failed = true
		return nil
	}
	out := d.rest[:n]
	d.rest = d.rest[n:]
	return out
}

// Uint32 reads an unsigned integer (or an enum, or a boolean).
func (d *Decoder) Uint32() uint32 {
	if b := d.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// Uint64 reads an unsigned hyper.
func (d *Decoder) Uint64() uint64 {
	if b := d.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// Fixed reads n opaque bytes and their padding.
func (d *Decoder) Fixed(n int) []byte {
	out := d.take(n)
	d.take(pad(n))
	if d.failed {
		return nil
	}
	return out
}

// Opaque reads at most `most` opaque bytes of variable length; the result is a part of the message.
func (d *Decoder) Opaque(most int) []byte {
	n := d.Uint32()
	if d.failed || uint64(n) > uint64(most) {
		d.failed = true
		return nil
	}
	return d.Fixed(int(n))
}

// String reads a string of at most `most` bytes.
func (d *Decoder) String(most int) string { return string(d.Opaque(most)) }

func pad(n int) int { return -n & 3 }

// Encoder appends XDR values to a message.
type Encoder struct{ Bytes []byte }

// Uint32 appends an unsigned integer.
func (e *Encoder) Uint32(v uint32) { e.Bytes = binary.BigEndian.AppendUint32(e.Bytes, v) }

// Uint64 appends an unsigned hyper.
func (e *Encoder) Uint64(v uint64) { e.Bytes = binary.BigEndian.AppendUint64(e.Bytes, v) }

// Bool appends a boolean.
func (e *Encoder) Bool(v bool) {
	if v {
		e.Uint32(1)
	} else {
		e.Uint32(0)
	}
}

// Fixed appends opaque bytes and their padding.
func (e *Encoder) Fixed(v []byte) {
	e.Bytes = append(e.Bytes, v...)
	e.Bytes = append(e.Bytes, make([]byte, pad(len(v)))...)
}

// Opaque appends opaque bytes with their length.
func (e *Encoder) Opaque(v []byte) {
	e.Uint32(uint32(len(v)))
	e.Fixed(v)
}

// String appends a string.
func (e *Encoder) String(v string) { e.Opaque([]byte(v)) }
