package protocol

import (
	"encoding/binary"
	"fmt"
	"time"

	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/redirectlog"
)

// Entry returns the journal form of a record: its note is a kind and unsigned varints.
func (r Record) Entry() redirectlog.Entry {
	e := redirectlog.Entry{Record: r.Change}
	if n := r.Note; n.Kind != NoNote {
		e.Note = append(e.Note, byte(n.Kind))
		values := []uint64{n.Write.Client, n.Write.Seq, uint64(n.Second), n.Value}
		if n.Kind == LastIs {
			values = append(values, uint64(r.Change.Receipt), uint64(r.Change.Time))
		}
		for _, v := range values {
			e.Note = binary.AppendUvarint(e.Note, v)
		}
		if n.Kind == ObjectIs {
			e.Note = append(appendString(e.Note, string(r.Change.Object)), n.Sums...)
		}
	}
	return e
}

// RecordOf is the inverse of Entry.
func RecordOf(e redirectlog.Entry) (Record, error) {
	r := Record{Change: e.Record}
	if len(e.Note) == 0 {
		return r, nil
	}
	d := decoder{rest: e.Note[1:]}
	r.Note = Note{Kind: NoteKind(e.Note[0]), Write: WriteID{d.uint(), d.uint()}, Second: Node(d.uint32()),
		Value: d.uint()}
	switch r.Note.Kind {
	case ObjectIs:
		r.Change.Object = twochoice.Object(d.take(d.count(MaxName, 1)))
		r.Note.Sums, d.rest = string(d.rest), nil
	case LastIs:
		r.Change.Receipt, r.Change.Time = twochoice.Receipt(d.uint()), time.Duration(d.uint())
	}
	if d.err != nil || len(d.rest) > 0 || r.Note.Kind >= noteKinds {
		return r, fmt.Errorf("a note of kind %d has an impossible form", e.Note[0])
	}
	return r, nil
}
