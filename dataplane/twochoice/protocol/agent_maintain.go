package protocol

import (
	"slices"
	"time"

	"hotbed/dataplane/twochoice"
)

// pull is a maintainer's work in progress (section V.C): read from the fragment, write to the base,
// record.
type pull struct {
	*twochoice.Pull
	call   uint64 // of the get
	from   Peer
	since  time.Duration
	data   []byte
	ranges []twochoice.Range // being written
	sums   [][]Sum           // of each range
	left   int               // ranges being written, then returns being recorded
	failed bool              // in part
}

// idle reports whether a node is idle enough to move data there.
func (a *Agent) idle(s twochoice.Server) bool {
	if n := a.book.node(s); n != a.config.Node {
		return a.now >= a.busy[n]
	}
	operations, _ := a.config.Detector.InFlight()
	return operations <= int64(a.config.IdleOps)
}

// maintain begins pulls while the node is idle, and gives up pulls that hang.
func (a *Agent) maintain() {
	for _, p := range a.pullsInOrder() {
		if p.data == nil && a.now-p.since > a.config.Patience {
			a.endPull(p)
		}
	}
	if a.config.Copies > 1 || a.paused || a.now < a.rests {
		return
	}
	for _, started := range a.maintainer.Start(a.idle) {
		a.begin(&pull{Pull: started, since: a.now})
	}
}

// Pause stops the maintainer (true), even with pulls in progress, or resumes it.
func (a *Agent) Pause(paused bool) { a.paused = paused }

func (a *Agent) pullsInOrder() []*pull {
	out := make([]*pull, 0, len(a.pulls))
	for _, key := range sortedKeys(a.pulls) {
		out = append(out, a.pulls[key])
	}
	return out
}

// begin reads a pull's data, locally or from another idle node.
func (a *Agent) begin(p *pull) {
	a.pullNumber++
	p.call = a.pullNumber
	a.pulls[p.call] = p
	where := a.book.places[p.Receipt]
	m := Message{Kind: Get, Call: p.call, Object: string(p.Object), Write: where.write, From: p.Range.Start,
		To: p.Range.End, Register: true}
	target := where.targets[0]
	p.from = Peer(target)
	if target != a.config.Node {
		a.send(Peer(target), m)
		return
	}
	op := DiskOp{Kind: GetFragment, Object: m.Object, Write: m.Write, Node: a.config.Node, From: m.From, To: m.To}
	a.do(op, 0, 0, func(d DiskDone) {
		if a.pulls[p.call] != p { // given up meanwhile
			return
		}
		if d.Err != nil {
			a.refused(p, codeOf(d.Err))
			return
		}
		a.land(p, d.Data)
	})
}

// pulled handles the answer to a maintainer's get.
func (a *Agent) pulled(from Peer, m Message) {
	p := a.pulls[m.Call]
	if p == nil || p.data != nil || from != p.from {
		return
	}
	if m.Code == OK && uint64(len(m.Data)) == p.Range.Len() {
		a.land(p, m.Data)
		return
	}
	if m.Code == Busy {
		a.busy[Node(from)] = a.now + a.config.Patience
	}
	a.refused(p, m.Code)
}

// refused gives up a pull. If a disk refused (no space, or unreadable), it would refuse again. So
// pulls rest for a while, and the next pull takes other data.
func (a *Agent) refused(p *pull, why Code) {
	if why == Full || why == Failed {
		a.rests = a.now + a.config.Patience
	}
	a.endPull(p)
}

// yield gives up pulls that are still being read when there is other work ("the running threads can
// be stopped").
func (a *Agent) yield() {
	if len(a.pulls) == 0 || a.idle(twochoice.Server(a.config.Node)) {
		return
	}
	for _, p := range a.pullsInOrder() {
		if p.data == nil {
			a.endPull(p)
		}
	}
}

func (a *Agent) endPull(p *pull) {
	a.maintainer.End(p.Pull)
	delete(a.pulls, p.call)
}

// land writes the data that still belongs to the entry to the base.
func (a *Agent) land(p *pull, data []byte) {
	p.data, p.ranges = data, a.maintainer.Remaining(p.Pull)
	if len(p.ranges) == 0 {
		a.endPull(p)
		return
	}
	o := a.book.object(string(p.Object))
	switch cut := o.cutBy(p.ranges); {
	case len(cut) == 0:
		a.write(p)
	case o.splitting: // one at a time, because both change the same sums
		a.endPull(p)
	default:
		o.splitting = true
		for _, r := range p.ranges { // the range loses its sums before the write
			o.writesBase(r.Start, r.End)
		}
		a.split(p, o, cut)
	}
}

// cutBy returns the sums that cover bytes both inside and outside the ranges.
func (o *object) cutBy(ranges []twochoice.Range) []Sum {
	var out []Sum
	for _, r := range ranges {
		begin, end := overlapping(o.sums, r.Start, r.End)
		for _, s := range o.sums[begin:end] {
			if (s.From < r.Start || s.To > r.End) && !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	return out
}

// split durably replaces sums next to the ranges that a pull will write. A crash during that write
// invalidates the cut sums. Nobody reads the written range then, but its neighbours must stay
// verifiable.
func (a *Agent) split(p *pull, o *object, cut []Sum) {
	end := func(err error) {
		o.splitting = false
		if err != nil {
			a.refused(p, codeOf(err))
			return
		}
		a.write(p)
	}
	if len(cut) == 0 {
		end(nil)
		return
	}
	s := cut[0]
	if !slices.Contains(o.sums, s) || !a.someAtHome(string(p.Object), s.From, s.To) { // nobody reads these bytes
		a.split(p, o, cut[1:])
		return
	}
	op := DiskOp{Kind: ReadBase, Object: string(p.Object), From: s.From, To: s.To, Sums: []Sum{s}}
	a.do(op, 0, 0, func(d DiskDone) {
		if d.Err != nil {
			end(d.Err)
			return
		}
		var sums []Sum
		from := s.From
		for _, r := range append(slices.Clone(p.ranges), twochoice.Range{Start: s.To, End: s.To}) {
			if to := min(r.Start, s.To); to > from {
				sums = append(sums, SumsOf(from, d.Data[from-s.From:to-s.From])...)
			}
			from = max(from, r.End)
		}
		a.append(&order{record: objectRecord(string(p.Object), o.size, sums), done: func(err error) {
			if err != nil {
				end(err)
				return
			}
			a.split(p, o, cut[1:])
		}})
	})
}

// someAtHome reports whether a byte of a range is at home.
func (a *Agent) someAtHome(object string, from, to uint64) bool {
	return slices.ContainsFunc(a.book.pieces(object, from, to), func(p Piece) bool { return len(p.Targets) == 0 })
}

// write writes the ranges of a pull to the base.
func (a *Agent) write(p *pull) {
	p.left, p.sums = len(p.ranges), make([][]Sum, len(p.ranges))
	for i, r := range p.ranges {
		a.book.object(string(p.Object)).writesBase(r.Start, r.End)
		op := DiskOp{Kind: WriteBase, Object: string(p.Object), From: r.Start, To: r.End,
			Data: p.data[r.Start-p.Range.Start : r.End-p.Range.Start]}
		a.do(op, 0, 0, func(d DiskDone) {
			p.sums[i] = d.Sums
			p.failed = p.failed || d.Err != nil
			if p.left--; p.left == 0 {
				a.landed(p)
			}
		})
	}
}

// landed records that the data is at home, as of the receipt at the pull's start (figure 10).
func (a *Agent) landed(p *pull) {
	if p.failed {
		a.refused(p, Full)
		return
	}
	p.left = len(p.ranges)
	for i, r := range p.ranges {
		record := objectRecord(string(p.Object), a.book.object(string(p.Object)).size, p.sums[i])
		record.Change = a.book.table.Return(a.now, p.Object, r, p.AsOf)
		a.append(&order{record: record, done: func(err error) { a.returned(p, err) }})
	}
}

// returned ends a pull when all of its returns are recorded.
func (a *Agent) returned(p *pull, err error) {
	p.failed = p.failed || err != nil
	if p.left--; p.left > 0 {
		return
	}
	if p.failed {
		a.refused(p, Full)
		return
	}
	a.endPull(p)
	a.maintain()
}
