package protocol

import (
	"cmp"
	"fmt"
	"slices"
)

// object is the home's state of an object, apart from its table entries.
type object struct {
	size  uint64
	gen   uint64 // counts writes of the base
	bases []baseWrite
	sums  []Sum // of the base
	// splitting: sums are being replaced, because a pull will overwrite a part of their range.
	splitting bool
}

// baseWrite is a write of the base. A reader that queried before it must not read its range after.
type baseWrite struct{ gen, from, to uint64 }

// rememberedBases is the number of remembered base writes; readers that queried earlier ask again.
const rememberedBases = 64

// Limits of one log write: a frame holds at most this many records, and this many bytes of sums
// before the last record's sums.
const (
	mostRecords  = 1024
	mostSumBytes = 256 << 10
)

// order is a record to be logged: a write, a maintainer's return or a fence.
type order struct {
	record  Record
	waiting []waiter    // requests answered when the record is durable
	done    func(error) // also called when the record is durable, or did not fit
}

// register orders a write with a durable fragment. Its record goes into the log, and after the sync
// into the table (step 4 of figure 8; creates are ordered by their receipt, section V.B).
func (a *Agent) register(from Peer, m Message) {
	if problem := cmp.Or(a.checkRange(m), a.checkHome(m), a.checkTargets(m.Targets), a.checkName(m)); problem != "" {
		a.refuse(from, m, RegisterReply, Refused, "%s", problem)
		return
	}
	if !a.settled(from, m) {
		a.append(&order{record: a.book.write(a.now, m), waiting: []waiter{waits(from, m)}})
	}
}

func (a *Agent) checkTargets(targets []Node) string {
	ok := len(targets) >= 1 && len(targets) <= MaxTargets
	for i, t := range targets {
		ok = ok && int(t) < a.config.Nodes && !slices.Contains(targets[:i], t)
	}
	if !ok {
		return "a write is on one agent or two different ones that exist"
	}
	return ""
}

// settled answers a request for a write that is ordered, given up, or being ordered.
func (a *Agent) settled(from Peer, m Message) bool {
	s := a.book.session(m.Write.Client)
	s.forget(m.Low)
	if o := s.underWay[m.Write.Seq]; o != nil {
		if len(o.waiting) < 4 {
			o.waiting = append(o.waiting, waits(from, m))
		}
		return true
	}
	stamp, known := s.settled[m.Write.Seq]
	switch {
	case known && stamp == fencedStamp:
		a.refuseFenced(waiter{from, m})
	case known:
		a.orderedReply(waiter{from, m}, stamp)
	case m.Write.Seq < s.low: // nobody waits for an answer
	default:
		return false
	}
	return true
}

func (a *Agent) orderedReply(w waiter, stamp uint64) {
	a.answer(w.from, w.m, Message{Kind: RegisterReply, Stamp: stamp})
}

// append queues a record for the log.
func (a *Agent) append(o *order) {
	if w := o.record.Note.Write; w != (WriteID{}) {
		a.book.session(w.Client).underWay[w.Seq] = o
	}
	a.queue = append(a.queue, o)
	a.sync()
}

// sync makes the queued records durable together; later records wait for the next sync.
func (a *Agent) sync() {
	if len(a.writing) > 0 || a.compacting {
		return
	}
	if len(a.queue) == 0 {
		a.compact()
		return
	}
	if !a.book.founded && a.queue[0].record.Note.Kind != ClusterIs { // the log had no space for it before
		a.queue = slices.Insert(a.queue, 0, a.founding())
	}
	n, sums := 0, 0
	for n < min(len(a.queue), mostRecords) && sums < mostSumBytes {
		sums += len(a.queue[n].record.Note.Sums)
		n++
	}
	a.writing, a.queue = a.queue[:n:n], a.queue[n:]
	records := make([]Record, len(a.writing))
	for i, o := range a.writing {
		records[i] = o.record
	}
	a.do(DiskOp{Kind: WriteLog, Records: records}, 0, 0, a.synced)
}

// synced applies and answers the records that are now durable.
func (a *Agent) synced(d DiskDone) {
	orders := a.writing
	a.writing = nil
	if d.Err == nil {
		a.logged += len(orders)
	}
	for _, o := range orders {
		if w := o.record.Note.Write; w != (WriteID{}) {
			delete(a.book.session(w.Client).underWay, w.Seq)
		}
		if d.Err == nil {
			a.apply(o)
		}
		a.acknowledge(o, d.Err)
	}
	a.sync()
}

// compact replaces a mostly dead log with a snapshot when nothing waits for the log.
func (a *Agent) compact() {
	if a.config.CompactAbove == 0 || a.logged <= a.config.CompactAbove || a.failed != nil {
		return
	}
	records := a.book.snapshot()
	if 2*len(records) > a.logged {
		a.config.CompactAbove = 2 * a.logged // most is live: not again soon
		return
	}
	a.compacting = true
	a.do(DiskOp{Kind: CompactLog, Records: records}, 0, 0, func(d DiskDone) {
		a.compacting = false
		if d.Err == nil {
			a.logged = len(records)
		} else {
			a.config.CompactAbove = 2 * a.logged
		}
		a.sync()
	})
}

// apply applies a durable record, and drops the fragments that it makes unnecessary.
func (a *Agent) apply(o *order) {
	dead, err := a.book.apply(o.record)
	if err != nil {
		a.fail(err)
		return
	}
	for _, f := range dead {
		a.dropAt(f)
	}
}

// acknowledge answers the requests waiting for a record: it is durable, or did not fit.
func (a *Agent) acknowledge(o *order, err error) {
	if o.done != nil {
		o.done(err)
	}
	for _, w := range o.waiting {
		switch {
		case err != nil:
			a.refuse(w.from, w.m, RegisterReply, Full, "no room for the record of a write to %q; free space there",
				w.m.Object)
		case o.record.Writes():
			a.orderedReply(w, uint64(o.record.Change.Receipt))
		default:
			a.refuseFenced(w)
		}
	}
}

func (a *Agent) refuseFenced(w waiter) {
	a.refuse(w.from, w.m, RegisterReply, Fenced, "write %v of %q was given up; write it anew", w.m.Write, w.m.Object)
}

// dropAt removes a fragment from its targets.
func (a *Agent) dropAt(f Dead) {
	for _, target := range f.Targets {
		m := Message{Kind: Drop, Object: f.Object, Write: f.Write}
		if target == a.config.Node {
			a.drop(m)
		} else {
			a.send(Peer(target), m)
		}
	}
}

// query answers with the location of a range (steps a and b of figure 8).
func (a *Agent) query(from Peer, m Message) {
	if problem := cmp.Or(a.checkRange(m), a.checkHome(m)); problem != "" {
		a.refuse(from, m, QueryReply, Refused, "%s", problem)
		return
	}
	o := a.book.asked(m.Object)
	last, _ := a.book.table.Last()
	if m.To > o.size {
		a.answer(from, m, Message{Kind: QueryReply, Code: Refused, Stamp: uint64(last), Size: o.size, Text: fmt.Sprintf(
			"range %d to %d is beyond object %q, which has %d bytes", m.From, m.To, m.Object, o.size)})
		return
	}
	pieces := a.book.pieces(m.Object, m.From, m.To)
	if len(pieces) > MaxPieces {
		a.refuse(from, m, QueryReply, Refused, "range %d to %d of %q is in %d pieces, more than %d; read less at a time",
			m.From, m.To, m.Object, len(pieces), MaxPieces)
		return
	}
	a.answer(from, m, Message{Kind: QueryReply, Pieces: pieces, Stamp: uint64(last), Size: o.size,
		Epoch: a.config.Epoch, Gen: o.gen})
}

// getBase reads the base, unless the range was written since the reader's query.
func (a *Agent) getBase(from Peer, m Message) {
	if problem := a.checkRange(m); problem != "" {
		a.refuse(from, m, Data, Refused, "%s", problem)
		return
	}
	if a.changed(m) {
		a.refuse(from, m, Data, Changed, "the base of %q was written since", m.Object)
		return
	}
	op := DiskOp{Kind: ReadBase, Object: m.Object, From: m.From, To: m.To, Sums: a.sums(m.Object, m.From, m.To)}
	a.do(op, 0, int64(m.To-m.From), func(d DiskDone) {
		// A write next to the range may have changed the sums meanwhile.
		if a.changed(m) && d.Err == nil || d.Err != nil && m.Gen != a.book.asked(m.Object).gen {
			a.refuse(from, m, Data, Changed, "the base of %q was written since", m.Object)
			return
		}
		a.read(from, m, d)
	})
}

// sums returns the base's sums that overlap a range.
func (a *Agent) sums(object string, from, to uint64) []Sum {
	sums := a.book.asked(object).sums
	begin, end := overlapping(sums, from, to)
	return slices.Clone(sums[begin:end])
}

func (a *Agent) changed(m Message) bool {
	o := a.book.asked(m.Object)
	if m.Epoch != a.config.Epoch || m.Gen > o.gen {
		return true
	}
	if o.gen-m.Gen > uint64(len(o.bases)) {
		return true // writes that old are no longer remembered
	}
	return slices.ContainsFunc(o.bases, func(b baseWrite) bool {
		return b.gen > m.Gen && b.from < m.To && m.From < b.to
	}) || o.gen > m.Gen && slices.ContainsFunc(a.book.pieces(m.Object, m.From, m.To), func(p Piece) bool {
		return len(p.Targets) > 0 // overwritten ranges no longer have sums
	})
}

// writesBase records that a range of the base is being written.
func (o *object) writesBase(from, to uint64) {
	o.gen++
	o.bases = append(o.bases, baseWrite{o.gen, from, to})
	if len(o.bases) > rememberedBases {
		o.bases = slices.Delete(o.bases, 0, len(o.bases)-rememberedBases)
	}
}

// fence answers if a store still needs a fragment. After the answer, a write that was not ordered
// can never be ordered.
func (a *Agent) fence(from Peer, m Message) {
	reply := Message{Kind: FenceReply, Object: m.Object, Write: m.Write}
	if a.checkRange(m) != "" || a.checkHome(m) != "" {
		return
	}
	s := a.book.session(m.Write.Client)
	_, known := s.settled[m.Write.Seq]
	switch {
	case s.underWay[m.Write.Seq] != nil || a.book.needs(m):
		reply.Needed = true
	case a.book.cut: // not known yet: the store asks again
		return
	case !known:
		a.append(&order{record: fenceRecord(m.Write), done: func(err error) {
			if err == nil {
				a.answerFence(from, m, reply)
			}
		}})
		return
	}
	a.answerFence(from, m, reply)
}

func (a *Agent) answerFence(from Peer, m, reply Message) {
	if from == Peer(a.config.Node) {
		a.fenced(reply)
		return
	}
	a.answer(from, m, reply)
}
