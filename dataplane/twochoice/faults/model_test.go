package faults

import (
	"errors"
	"strings"
	"testing"

	"hotbed/dataplane/twochoice/protocol"
)

// acknowledged returns a write of the model that succeeded.
func acknowledged(m *model, from uint64, data string, stamp uint64) *write {
	w := m.begin("o", from, []byte(data))
	m.named(w, protocol.WriteID{Client: 1, Seq: stamp})
	m.ended(w, protocol.Finished{Stamp: stamp})
	return w
}

func TestTheModelAcceptsWhatIsPromised(t *testing.T) {
	m := newModel()
	late := m.begin("o", 2, []byte("xyz")) // in progress all the time
	m.named(late, protocol.WriteID{Client: 2, Seq: 1})
	acknowledged(m, 0, "abcd", 3)
	acknowledged(m, 1, "E", 7)
	m.read("o", 0, 4, 3, protocol.Finished{Stamp: 5, Data: []byte("abcd")})
	m.read("o", 0, 4, 5, protocol.Finished{Stamp: 8, Data: []byte("aEcd")})
	m.ordered(protocol.Ordered{Object: "o", From: 2, To: 5, Write: protocol.WriteID{Client: 2, Seq: 1}, Stamp: 9})
	m.ordered(protocol.Ordered{Object: "o", From: 2, To: 5, Write: protocol.WriteID{Client: 2, Seq: 1}, Stamp: 9,
		Again: true})
	m.read("o", 0, 5, 8, protocol.Finished{Stamp: 9, Data: []byte("aExyz")})
	acknowledged(m, 7, "z", 10)
	m.read("o", 4, 8, 10, protocol.Finished{Stamp: 10, Data: []byte("z\x00\x00z")})
	m.beyond("o", 9, 8, 10)
	if m.found != nil || m.reads != 4 || m.acked != 3 {
		t.Errorf("%v, %d reads, %d writes", m.found, m.reads, m.acked)
	}
}

func TestTheModelFindsEachViolation(t *testing.T) {
	id := protocol.WriteID{Client: 2, Seq: 1}
	for want, do := range map[string]func(m *model, w *write){
		"leave 99": func(m *model, _ *write) { m.read("o", 0, 4, 3, protocol.Finished{Stamp: 3, Data: []byte("abxd")}) },
		"before 3 that had ended when it began": func(m *model, _ *write) {
			m.read("o", 0, 4, 3, protocol.Finished{Stamp: 2, Data: []byte{0, 0, 0, 0}})
		},
		"two writes are in the order at 3": func(m *model, _ *write) {
			w := m.begin("p", 0, []byte("z"))
			m.ended(w, protocol.Finished{Stamp: 3}) // another object has another order
			w = m.begin("o", 0, []byte("z"))
			w.floor = 0
			m.ended(w, protocol.Finished{Stamp: 3})
		},
		"in the order at 2, before 3": func(m *model, w *write) { m.ended(w, protocol.Finished{Stamp: 2}) },
		"at 4 and again at 5": func(m *model, w *write) {
			m.ended(w, protocol.Finished{Stamp: 4})
			m.ordered(protocol.Ordered{Object: "o", From: 1, To: 3, Write: id, Stamp: 5})
		},
		"done at 4 after its client was told that it was not": func(m *model, w *write) {
			m.ended(w, protocol.Finished{Err: errors.New("full"), Decided: true})
			m.ordered(protocol.Ordered{Object: "o", From: 1, To: 3, Write: id, Stamp: 4})
		},
		"its client was told that it is not done": func(m *model, w *write) {
			m.ordered(protocol.Ordered{Object: "o", From: 1, To: 3, Write: id, Stamp: 4})
			m.ended(w, protocol.Finished{Err: errors.New("full"), Decided: true})
		},
		"that nobody made": func(m *model, _ *write) {
			m.ordered(protocol.Ordered{Object: "o", From: 1, To: 4, Write: id, Stamp: 4})
		},
		"without a place in the order": func(m *model, w *write) { m.ended(w, protocol.Finished{}) },
		"beyond the object's 4": func(m *model, _ *write) {
			m.read("o", 0, 6, 3, protocol.Finished{Stamp: 3, Data: []byte("abcd\x00\x00")})
		},
		"was refused, and":    func(m *model, _ *write) { m.beyond("o", 4, 3, 3) },
		"was refused as of 0": func(m *model, _ *write) { m.beyond("o", 4, 3, 0) }, // all was forgotten
		"nothing is wrong with it": func(m *model, w *write) {
			m.ended(w, protocol.Finished{Err: &protocol.Error{Code: protocol.Refused, Text: "no"}})
		},
	} {
		m := newModel()
		acknowledged(m, 0, "abcd", 3)
		w := m.begin("o", 1, []byte("xy"))
		m.named(w, id)
		do(m, w)
		if m.found == nil || !strings.Contains(m.found.Error(), want) {
			t.Errorf("wanted %q, found %v", want, m.found)
		}
	}
}
