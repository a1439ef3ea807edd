package protocol

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"hotbed/dataplane/twochoice"
)

// The encoding of a message: kind, flags, unsigned varints in the order of encode, and the data
// last. The encoding is machine-independent. Decode accepts exactly what Append produces.

var errShort = errors.New("the message ends early")

const (
	flagRegister = 1 << iota
	flagNeeded
)

// Append appends m's encoding to b without m.Data: only its length is encoded, the bytes follow.
func (m *Message) Append(b []byte) []byte {
	var flags byte
	if m.Register {
		flags |= flagRegister
	}
	if m.Needed {
		flags |= flagNeeded
	}
	b = append(b, byte(m.Kind), flags, byte(m.Code))
	b = appendUints(b, m.Call, uint64(m.Version), uint64(m.Node), m.Epoch, m.Write.Client, m.Write.Seq, m.From, m.To,
		m.Low, m.Stamp, m.Gen, m.Ticket, m.Size)
	b = appendString(b, m.Object)
	b = appendString(b, m.Text)
	b = appendNodes(b, m.Targets)
	b = binary.AppendUvarint(b, uint64(len(m.Loads)))
	for _, l := range m.Loads {
		b = appendUints(b, uint64(l.Node), uint64(l.InFlight), math.Float64bits(l.Load), l.Latency, l.Age, l.Ticket)
	}
	b = binary.AppendUvarint(b, uint64(len(m.Pieces)))
	for _, p := range m.Pieces {
		b = appendUints(b, p.From, p.To, p.Write.Client, p.Write.Seq, p.Origin, p.Stamp)
		b = appendNodes(b, p.Targets)
	}
	return binary.AppendUvarint(b, uint64(len(m.Data)))
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendNodes(b []byte, nodes []Node) []byte {
	b = binary.AppendUvarint(b, uint64(len(nodes)))
	for _, n := range nodes {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

// Decode reads a message that fills b; its Data are a part of b.
func Decode(b []byte) (Message, error) {
	m, n, d := decodeHead(b)
	if n > 0 {
		m.Data = d.take(n)
	}
	if d.err == nil && len(d.rest) > 0 {
		d.err = fmt.Errorf("%d bytes follow a message", len(d.rest))
	}
	if d.err != nil {
		return Message{}, fmt.Errorf("%v: %w", m.Kind, d.err)
	}
	return m, nil
}

// DecodeHead reads a message without its Data; b starts with the message.
func DecodeHead(b []byte) (Message, error) {
	m, _, d := decodeHead(b)
	return m, d.err
}

// decodeHead reads all but the data, and returns the data's length.
func decodeHead(b []byte) (m Message, data int, d decoder) {
	d.rest = b
	head := d.take(3)
	if d.err != nil {
		return m, 0, d
	}
	m.Kind, m.Code = Kind(head[0]), Code(head[2])
	if m.Kind == 0 || m.Kind >= kinds || m.Code > Failed || head[1] > flagRegister|flagNeeded {
		d.err = fmt.Errorf("a message begins with %x, which is none of version %d", head, Version)
		return m, 0, d
	}
	m.Register, m.Needed = head[1]&flagRegister != 0, head[1]&flagNeeded != 0
	m.Call, m.Version, m.Node, m.Epoch = d.uint(), d.uint32(), Node(d.uint32()), d.uint()
	m.Write = WriteID{d.uint(), d.uint()}
	m.From, m.To, m.Low, m.Stamp = d.uint(), d.uint(), d.uint(), d.uint()
	m.Gen, m.Ticket, m.Size = d.uint(), d.uint(), d.uint()
	m.Object = string(d.take(d.count(MaxName, 1)))
	m.Text = string(d.take(d.count(1<<16, 1)))
	m.Targets = d.nodes()
	if n := d.count(MaxLoads, 6); n > 0 {
		m.Loads = make([]Load, n)
		for i := range m.Loads {
			m.Loads[i] = Load{Node(d.uint32()), d.uint32(), math.Float64frombits(d.uint()), d.uint(), d.uint(),
				d.uint()}
		}
	}
	if n := d.count(MaxPieces, 7); n > 0 {
		m.Pieces = make([]Piece, n)
		for i := range m.Pieces {
			m.Pieces[i] = Piece{d.uint(), d.uint(), WriteID{d.uint(), d.uint()}, d.uint(), d.uint(), d.nodes()}
		}
	}
	return m, d.count(MaxData, 0), d
}

// decoder reads from the front of rest; after an error it returns zeros.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) take(n int) []byte {
	if d.err == nil && n > len(d.rest) {
		d.err = errShort
	}
	if d.err != nil {
		return nil
	}
	out := d.rest[:n:n]
	d.rest = d.rest[n:]
	return out
}

func (d *decoder) uint() uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.rest)
	switch {
	case n == 0:
		d.err = errShort
	case n < 0 || n > 1 && d.rest[n-1] == 0:
		d.err = errors.New("a number is not in its shortest form")
	}
	if d.err != nil {
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) uint32() uint32 {
	v := d.uint()
	if v > 1<<32-1 && d.err == nil {
		d.err = fmt.Errorf("%d is larger than 32 bits", v)
	}
	return uint32(v)
}

// count reads a number of elements with at least size bytes each.
func (d *decoder) count(most, size int) int {
	v := d.uint()
	switch {
	case d.err != nil:
		return 0
	case v > uint64(most):
		d.err = fmt.Errorf("it holds %d of what there may be %d", v, most)
		return 0
	case v*uint64(size) > uint64(len(d.rest)):
		d.err = errShort
		return 0
	}
	return int(v)
}

func (d *decoder) nodes() []Node {
	n := d.count(MaxTargets, 1)
	if n == 0 {
		return nil
	}
	out := make([]Node, n)
	for i := range out {
		out[i] = Node(d.uint32())
	}
	return out
}

// Append appends the log's form of a record: the length of the note, the note, and the change, 0 if
// there is none. A note is a kind and unsigned varints. A change is a kind (1), then unsigned varints:
// length of the name, the name, start, length, receipt, time (zigzag); redirected: OSD, fragment;
// returned: as of; held: OSD, fragment, start and length of the whole entry.
func (r Record) Append(b []byte) []byte {
	note := make([]byte, 0, 64)
	if n := r.Note; n.Kind != NoNote {
		note = append(note, byte(n.Kind))
		note = appendUints(note, n.Write.Client, n.Write.Seq, uint64(n.Second), n.Value)
		switch n.Kind {
		case LastIs:
			note = appendUints(note, uint64(r.Change.Receipt), uint64(r.Change.Time))
		case ObjectIs:
			note = append(appendString(note, string(r.Change.Object)), n.Sums...)
		}
	}
	b = append(binary.AppendUvarint(b, uint64(len(note))), note...)
	c := r.Change
	b = append(b, byte(c.Kind))
	if c.Kind == 0 {
		return b
	}
	b = appendUints(appendString(b, string(c.Object)), c.Range.Start, c.Range.Len(), uint64(c.Receipt))
	b = binary.AppendVarint(b, int64(c.Time))
	switch c.Kind {
	case twochoice.Returned:
		return appendUints(b, uint64(c.AsOf))
	case twochoice.Held:
		b = appendUints(b, uint64(c.Location.Server), c.Location.Fragment)
		return appendUints(b, c.Origin.Start, c.Origin.Len())
	}
	return appendUints(b, uint64(c.Location.Server), c.Location.Fragment)
}

func appendUints(b []byte, values ...uint64) []byte {
	for _, v := range values {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

// AppendRecords appends the records that fill b to `into`.
func AppendRecords(into []Record, b []byte) ([]Record, error) {
	d := decoder{rest: b}
	for n := 1; len(d.rest) > 0; n++ {
		note := decoder{rest: d.take(d.count(math.MaxInt, 1))}
		r := d.change()
		if len(note.rest) > 0 {
			note.note(&r)
		}
		if d.err = cmp.Or(d.err, note.err); d.err != nil {
			return into, fmt.Errorf("record %d: %w", n, d.err)
		}
		into = append(into, r)
	}
	return into, nil
}

func (d *decoder) change() (r Record) {
	kind := d.take(1)
	if len(kind) == 0 || kind[0] == 0 {
		return r
	}
	c := &r.Change
	c.Kind, c.Object = twochoice.Kind(kind[0]), twochoice.Object(d.take(d.count(MaxName, 1)))
	c.Range, c.Receipt = d.span(), twochoice.Receipt(d.uint())
	zigzag := d.uint()
	c.Time = time.Duration(zigzag>>1) ^ -time.Duration(zigzag&1)
	switch c.Kind {
	case twochoice.Redirected, twochoice.Held:
		c.Location = twochoice.Location{Server: twochoice.Server(d.uint32()), Fragment: d.uint()}
		if c.Kind == twochoice.Held {
			c.Origin = d.span()
		}
	case twochoice.Returned:
		c.AsOf = twochoice.Receipt(d.uint())
	default:
		d.err = cmp.Or(d.err, fmt.Errorf("it is of kind %d", c.Kind))
	}
	return r
}

func (d *decoder) span() twochoice.Range {
	start := d.uint()
	return twochoice.Range{Start: start, End: start + d.uint()}
}

// note reads a note that fills the input.
func (d *decoder) note(r *Record) {
	kind := NoteKind(d.take(1)[0])
	r.Note = Note{Kind: kind, Write: WriteID{d.uint(), d.uint()}, Second: Node(d.uint32()), Value: d.uint()}
	switch kind {
	case ObjectIs:
		r.Change.Object = twochoice.Object(d.take(d.count(MaxName, 1)))
		r.Note.Sums, d.rest = string(d.rest), nil
	case LastIs:
		r.Change.Receipt, r.Change.Time = twochoice.Receipt(d.uint()), time.Duration(d.uint())
	}
	if len(d.rest) > 0 || kind >= noteKinds {
		d.err = cmp.Or(d.err, fmt.Errorf("a note of kind %d has an impossible form", kind))
	}
}
