package protocol

import (
	"bytes"
	"reflect"
	"testing"

	"hotbed/dataplane/tests/must"
)

func full() Message {
	return Message{Kind: QueryReply, Call: 1 << 60, Version: Version, Node: 7, Epoch: 9, Object: "run/17",
		Write: WriteID{1<<63 + 5, 300}, From: 4, To: 1 << 40, Targets: []Node{3, 1}, Register: true, Needed: true,
		Low: 128, Stamp: 127, Gen: 2, Ticket: 11, Size: 1 << 62,
		Loads:  []Load{{1, 2, 1.5e9, 4, 5, 6}, {Node: 1<<32 - 1}},
		Pieces: []Piece{{0, 8, WriteID{1, 2}, 3, 4, []Node{5}}, {8, 9, WriteID{}, 0, 0, nil}},
		Data:   []byte("bytes"), Code: Changed, Text: "a sentence"}
}

func encoded(m Message) []byte { return append(m.Append(nil), m.Data...) }

func TestAMessageIsReadBackAsItWasWritten(t *testing.T) {
	for kind := Hello; kind < kinds; kind++ {
		for _, m := range []Message{{Kind: kind}, full()} {
			m.Kind = kind
			got, err := Decode(encoded(m))
			if err != nil || !reflect.DeepEqual(got, m) {
				t.Errorf("%v: %v\n got %+v\nwant %+v", kind, err, got, m)
			}
		}
		if kindNames[kind] == "" || kind.String() == "?" {
			t.Errorf("kind %d has no name", kind)
		}
	}
}

func TestEveryFieldOfAMessageIsEncoded(t *testing.T) {
	m := reflect.ValueOf(full())
	for i := range m.NumField() {
		if m.Field(i).IsZero() {
			t.Errorf("the test's message has no %s", m.Type().Field(i).Name)
		}
	}
}

func TestAMessageThatIsNoneIsRefused(t *testing.T) {
	good := encoded(full())
	for n := range good {
		if _, err := Decode(good[:n]); err == nil {
			t.Fatalf("%d bytes of %d were a message", n, len(good))
		}
	}
	for text, b := range map[string][]byte{
		"follow":   append(bytes.Clone(good), 0),
		"none of":  append([]byte{byte(kinds)}, good[1:]...),
		"shortest": append([]byte{byte(Drop), 0, 0, 0x80, 0}, make([]byte, 30)...),
		"32 bits":  append([]byte{byte(Drop), 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x7f}, make([]byte, 30)...),
	} {
		_, err := Decode(b)
		must.Refuse(t, err, text)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encoded(full()))
	f.Add(encoded(Message{Kind: Put, Object: "o", To: 3, Data: []byte{1, 2, 3}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Decode(b)
		if err != nil {
			return
		}
		if again := encoded(m); !bytes.Equal(again, b) {
			t.Fatalf("%x was read as %+v, which is %x", b, m, again)
		}
	})
}
