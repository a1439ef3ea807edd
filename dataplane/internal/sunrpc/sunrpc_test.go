package sunrpc

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"hotbed/dataplane/tests/must"
)

// readAll splits a stream that arrives in chunks into records.
func readAll(stream []byte, chunk, most int) (records [][]byte, err error) {
	r := Reader{Most: most}
	for len(stream) > 0 {
		n := copy(r.Space(), stream[:min(chunk, len(stream))])
		r.Filled(n)
		stream = stream[n:]
		for {
			marked, record, err := r.Next()
			if err != nil {
				return records, err
			}
			if record == nil {
				break
			}
			if mark := binary.BigEndian.Uint32(marked); mark != lastFragment|uint32(len(record)) ||
				!bytes.Equal(marked[markBytes:], record) {
				panic("the marked form is another record")
			}
			records = append(records, append([]byte{}, record...))
		}
	}
	return records, nil
}

// call returns a whole record, without its mark.
func call(procedure uint32, arguments ...byte) []byte {
	e := AppendCall(nil, 7, 100003, 3, procedure)
	e.Bytes = append(e.Bytes, arguments...)
	return e.Bytes[markBytes:]
}

func TestRecordsAreFoundHoweverTheyAreCut(t *testing.T) {
	want := [][]byte{call(1), bytes.Repeat([]byte("x"), 200_000), call(2, 1, 2, 3, 4), []byte("abcdefg")}
	for _, fragment := range []int{1000, 70_000, 1 << 30} {
		var stream []byte
		for _, record := range want {
			stream = append(stream, Fragments(record, fragment)...)
		}
		for _, chunk := range []int{1, 3, 4096, 100_000, 1 << 30} {
			got, err := readAll(stream, chunk, 200_000)
			if err != nil || !slices.EqualFunc(got, want, bytes.Equal) {
				t.Errorf("fragments of %d in chunks of %d: %d records, %v", fragment, chunk, len(got), err)
			}
		}
	}
}

func TestLongRecordsAreRefused(t *testing.T) {
	for name, stream := range map[string][]byte{
		"one fragment":   Fragments(make([]byte, 101), 1<<30),
		"many fragments": Fragments(make([]byte, 101), 10),
		"a mark alone":   {0xff, 0xff, 0xff, 0xff},
		"empty ones":     bytes.Repeat([]byte{0, 0, 0, 0}, manyFragments+1),
	} {
		if _, err := readAll(stream, 7, 100); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if got, err := readAll(Fragments(make([]byte, 100), 10), 7, 100); err != nil || len(got) != 1 {
		t.Errorf("100 of 100 bytes: %d records, %v", len(got), err)
	}
}

func TestAMarkAloneTakesNoMemory(t *testing.T) {
	r := Reader{Most: 1 << 30}
	r.Filled(copy(r.Space(), []byte{0xbf, 0xff, 0xff, 0xff}))
	if _, _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if n := len(r.Space()); n > 2*firstSpace {
		t.Errorf("%d bytes for a record of which nothing has come", n)
	}
}

func TestALongRecordTakesNoMoreThanItNeeds(t *testing.T) {
	record := Fragments(make([]byte, 1<<20), 1<<30)
	for name, stream := range map[string][]byte{"one fragment": record, "fragments": Fragments(make([]byte, 1<<20), 300_000)} {
		r := Reader{Most: 2 << 20}
		for rest := stream; len(rest) > 0; {
			n := copy(r.Space(), rest)
			r.Filled(n)
			rest = rest[n:]
			marked, _, err := r.Next()
			if err != nil || (marked != nil) != (len(rest) == 0) {
				t.Fatalf("%s: %v with %d bytes to come", name, err, len(rest))
			}
			if held := len(r.buffer) + cap(r.whole); marked == nil && held > r.Need()+firstSpace {
				t.Fatalf("%s: it has %d bytes and says that it needs %d", name, held, r.Need())
			}
		}
		if r.Buffered() != 0 || r.Need() != 0 {
			t.Errorf("%s: %d bytes are left of a whole record, %d needed", name, r.Buffered(), r.Need())
		}
		if r.Shrink(); len(r.buffer)+cap(r.whole) > firstSpace {
			t.Errorf("%s: %d bytes are kept for nothing", name, len(r.buffer)+cap(r.whole))
		}
	}
}

func TestTheFollowerReportsTheSameRecords(t *testing.T) {
	var stream []byte
	var want []uint32
	for i := range uint32(50) {
		e := AppendReply(nil, i*77, Success)
		record := append(e.Bytes[markBytes:], make([]byte, i*331)...)
		stream = append(stream, Fragments(record, int(1+i*100))...)
		want = append(want, i*77)
	}
	for _, chunk := range []int{1, 5, 1000, len(stream)} {
		var f Follower
		var got []uint32
		for rest := stream; len(rest) > 0; {
			n := min(chunk, len(rest))
			f.Follow(rest[:n], func(xid uint32) { got = append(got, xid) })
			rest = rest[n:]
		}
		if !slices.Equal(got, want) || !f.BetweenRecords() || f.Malformed {
			t.Errorf("in chunks of %d: %v", chunk, got)
		}
	}
}

func TestCallsAreParsed(t *testing.T) {
	c, err := ParseCall(call(6, 9, 9, 9, 9))
	if err != nil || c.XID != 7 || c.Program != 100003 || c.Version != 3 || c.Procedure != 6 ||
		c.Flavor != AuthUnix || !bytes.Equal(c.Arguments, []byte{9, 9, 9, 9}) {
		t.Errorf("%+v, %v", c, err)
	}
	whole := call(6)
	for n := range whole {
		if _, err := ParseCall(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes of a call were taken", n, len(whole))
		}
	}
	reply := AppendReply(nil, 1, Success)
	if _, err := ParseCall(reply.Bytes[markBytes:]); err != ErrNotACall {
		t.Errorf("a reply as a call: %v", err)
	}
	old := call(6)
	old[11] = 1
	_, err = ParseCall(old)
	must.Refuse(t, err, "version 1")
}

func TestRepliesAreParsed(t *testing.T) {
	e := AppendReply(nil, 5, Success)
	e.Uint64(77)
	xid, d, err := ParseReply(e.Bytes[markBytes:])
	if err != nil || xid != 5 || d.Uint64() != 77 || !d.OK() {
		t.Errorf("%d, %v", xid, err)
	}
	e = AppendReply(nil, 5, ProcedureUnavailable)
	if _, _, err := ParseReply(e.Bytes[markBytes:]); err == nil || !strings.Contains(err.Error(), "state 3") {
		t.Errorf("an unknown procedure: %v", err)
	}
	if _, _, err := ParseReply(call(1)); err == nil {
		t.Error("a call as a reply was taken")
	}
}

func TestXDR(t *testing.T) {
	var e Encoder
	e.Opaque([]byte("abcde"))
	e.String("")
	e.Bool(true)
	e.Uint64(1 << 40)
	if len(e.Bytes) != 4+8+4+4+8 {
		t.Errorf("%d bytes", len(e.Bytes))
	}
	d := NewDecoder(e.Bytes)
	if s := d.String(5); s != "abcde" {
		t.Errorf("%q", s)
	}
	if s := d.String(5); s != "" || d.Uint32() != 1 || d.Uint64() != 1<<40 || !d.OK() || len(d.Rest()) != 0 {
		t.Errorf("%q, rest %d", s, len(d.Rest()))
	}
	if d.Uint32(); d.OK() {
		t.Error("a value was taken off the end")
	}
	d = NewDecoder(e.Bytes)
	if d.Opaque(4); d.OK() {
		t.Error("5 bytes were taken where 4 are allowed")
	}
}

func FuzzReader(f *testing.F) {
	f.Add(Fragments(call(6, 1, 2, 3), 1<<30), uint16(5))
	f.Add(append(Fragments(call(1), 10), Fragments([]byte("x"), 1)...), uint16(1))
	f.Add([]byte{0x80, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 1, 9}, uint16(2))
	f.Fuzz(func(t *testing.T, stream []byte, chunk uint16) {
		const most = 5000
		whole, wholeErr := readAll(stream, len(stream)+1, most)
		cut, cutErr := readAll(stream, int(chunk)+1, most)
		if !slices.EqualFunc(whole, cut, bytes.Equal) || (wholeErr == nil) != (cutErr == nil) {
			t.Fatalf("%d records and %v at once, %d and %v in chunks of %d", len(whole), wholeErr, len(cut),
				cutErr, int(chunk)+1)
		}
		if wholeErr != nil {
			return
		}
		var follower Follower
		var xids []uint32
		follower.Follow(stream, func(xid uint32) { xids = append(xids, xid) })
		for i, record := range whole {
			if len(record) < 4 {
				return // the follower stops at a malformed record
			}
			if i >= len(xids) || binary.BigEndian.Uint32(record) != xids[i] {
				t.Fatalf("record %d: %x, the follower has %x", i, record[:4], xids)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add(call(6, 1, 2, 3))
	e := AppendReply(nil, 5, Success)
	f.Add(e.Bytes[markBytes:])
	f.Fuzz(func(t *testing.T, record []byte) {
		if c, err := ParseCall(record); err == nil && len(c.Arguments) > len(record)-40 {
			t.Fatal("arguments that reach into the header")
		}
		if _, d, err := ParseReply(record); err == nil {
			for d.OK() {
				d.Opaque(64)
			}
		}
	})
}
