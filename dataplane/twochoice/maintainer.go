package twochoice

import (
	"fmt"
	"slices"
	"strconv"
)

// MaintainerParameters configures a server's metadata maintainer.
type MaintainerParameters struct {
	Workers int    `json:"workers"` // concurrent pulls, the paper's threads: 2
	Bytes   uint64 `json:"bytes"`   // maximum size of one pull: 4 MiB
}

// DefaultMaintainer returns the default parameters.
func DefaultMaintainer() MaintainerParameters { return MaintainerParameters{2, 4 << 20} }

// PullID identifies a pull.
type PullID uint64

// Pull is data to read from another server: Range of Object, at Offset of the fragment at Location.
type Pull struct {
	ID       PullID
	Object   Object
	Range    Range
	Location Location
	Offset   uint64
	Receipt  Receipt // receipt of the entry
	AsOf     Receipt // last receipt applied when the pull started
}

// Return is a range at home again, to be recorded as of a receipt (Table.Return).
type Return struct {
	Object Object
	Range  Range
	AsOf   Receipt
}

// HomeWrite identifies a write at home that is in progress.
type HomeWrite uint64

// Maintainer brings redirected data home while home and the other server are idle (section V.C).
// Maintainer only decides; its caller reads, writes and records:
//
//	pulls := m.Start(idle, nil)      // read each pull from its server
//	ranges, err := m.Pulled(id)      // read: write these ranges at home, durably; none: all done
//	returns, err := m.Landed(id)     // written: record each return, durably, and apply it
//	err = m.Done(id)                 // recorded: fragments of dead entries may be removed
//	m.Failed(id)                     // at any stage: given up, the data stays redirected
//
// Nothing is lost when writers run concurrently:
//
//   - A write redirected meanwhile has a later receipt than the pull's AsOf, and stays (the
//     timestamp rule of figure 10). Bytes of the pulled entry overwritten before Pulled are not
//     written at home.
//   - A pull must not overwrite a newer write at home with older data. BeginHomeWrite and
//     EndHomeWrite announce writes at home. A pull skips a range with a home write in progress. A
//     home write waits for a pull that is being written to its range.
//   - Until the return is recorded, readers use the other server, which keeps its fragment.
type Maintainer struct {
	p       MaintainerParameters
	table   *Table
	cursor  Cursor
	pulls   []*pull
	writes  map[Object][]homeWrite
	next    PullID
	nextOut HomeWrite
	stopped bool
	stats   MaintainerStats
}

// MaintainerStats counts what a maintainer did.
type MaintainerStats struct {
	Started, Cancelled, Failed, Done uint64
	// Overtaken counts pulls that found nothing to write, because later writes came.
	Overtaken uint64
	// Bytes counts bytes brought home.
	Bytes uint64
}

type stage uint8

const (
	pulling stage = iota
	landing
	recording
)

type pull struct {
	Pull
	stage  stage
	ranges []Range // to write, then to record
}

type homeWrite struct {
	id HomeWrite
	r  Range
}

// StageError reports a pull that does not exist or is at another stage.
type StageError struct {
	ID   PullID
	What string
}

func (e *StageError) Error() string {
	return fmt.Sprintf("pull %d is not %s; it is over, or was cancelled", e.ID, e.What)
}

// NewMaintainer returns an idle maintainer of a table.
func NewMaintainer(p MaintainerParameters, t *Table) (*Maintainer, error) {
	if p.Workers < 1 || p.Workers > 1024 {
		return nil, &ParameterError{"maintainer.workers", strconv.Itoa(p.Workers), "1 to 1024"}
	}
	if p.Bytes == 0 {
		return nil, &ParameterError{"maintainer.bytes", "0", "1 and more"}
	}
	return &Maintainer{p: p, table: t, writes: map[Object][]homeWrite{}}, nil
}

// searched limits the pieces that one Start examines.
const searched = 256

// Start begins pulls while workers are free and `idle` is true for both home and the other server.
// It cycles through all objects. Call it again when a server becomes idle or a pull is done.
func (m *Maintainer) Start(idle func(Server) bool, into []Pull) []Pull {
	if m.stopped || len(m.pulls) >= m.p.Workers || m.table.Len() == 0 || !idle(m.table.home) {
		return into
	}
	rounds := 0
	for looked := 0; looked < searched && len(m.pulls) < m.p.Workers; looked++ {
		piece, e, ok := m.table.Next(&m.cursor)
		if !ok {
			if rounds++; rounds > 1 {
				break
			}
			continue
		}
		if !idle(piece.Location.Server) {
			continue
		}
		if piece.Range.Len() > m.p.Bytes {
			piece.Range.End = piece.Range.Start + m.p.Bytes
			m.cursor.at = piece.Range.End // the next step takes the rest
		}
		if m.busy(e.Object, piece.Range) {
			continue
		}
		m.next++
		p := &pull{Pull: Pull{m.next, e.Object, piece.Range, piece.Location, piece.Offset, piece.Receipt,
			m.table.last}}
		m.pulls = append(m.pulls, p)
		m.stats.Started++
		into = append(into, p.Pull)
	}
	return into
}

// busy reports whether a range is being pulled or written at home.
func (m *Maintainer) busy(o Object, r Range) bool {
	for _, p := range m.pulls {
		if p.Object == o && p.Range.Overlaps(r) {
			return true
		}
	}
	return m.beingWritten(o, r)
}

func (m *Maintainer) beingWritten(o Object, r Range) bool {
	return slices.ContainsFunc(m.writes[o], func(w homeWrite) bool { return w.r.Overlaps(r) })
}

func (m *Maintainer) find(id PullID, s stage, what string) (*pull, error) {
	for _, p := range m.pulls {
		if p.ID == id && p.stage == s {
			return p, nil
		}
	}
	return nil, &StageError{id, what}
}

// Pulled records that a pull's data was read. It returns the ranges that still belong to the pull's
// entry. The caller must write these ranges at home durably; home writes to them wait meanwhile. If
// there are none, the pull is over.
func (m *Maintainer) Pulled(id PullID) ([]Range, error) {
	p, err := m.find(id, pulling, "being read")
	if err != nil {
		return nil, err
	}
	pieces, err := m.table.Query(p.Object, p.Range, nil)
	if err != nil {
		return nil, err
	}
	for _, piece := range pieces {
		if piece.Receipt == p.Receipt && !m.beingWritten(p.Object, piece.Range) {
			p.ranges = append(p.ranges, piece.Range)
		}
	}
	if len(p.ranges) == 0 {
		m.stats.Overtaken++
		m.remove(p)
		return nil, nil
	}
	p.stage = landing
	return p.ranges, nil
}

// Landed records that the ranges of a pull were written at home, durably. The caller must record
// the returns. Writes at home no longer wait.
func (m *Maintainer) Landed(id PullID) ([]Return, error) {
	p, err := m.find(id, landing, "being written at home")
	if err != nil {
		return nil, err
	}
	p.stage = recording
	out := make([]Return, len(p.ranges))
	for i, r := range p.ranges {
		out[i] = Return{p.Object, r, p.AsOf}
	}
	return out, nil
}

// Done records that the returns of a pull are recorded and applied.
func (m *Maintainer) Done(id PullID) error {
	p, err := m.find(id, recording, "being recorded")
	if err != nil {
		return err
	}
	for _, r := range p.ranges {
		m.stats.Bytes += r.Len()
	}
	m.stats.Done++
	m.remove(p)
	return nil
}

// Failed records that a pull could not be read, written or recorded, and that no part of it is in
// progress. A home write that waited for the pull may proceed. A later round tries the pull again.
func (m *Maintainer) Failed(id PullID) {
	for _, p := range m.pulls {
		if p.ID == id {
			m.stats.Failed++
			m.remove(p)
			return
		}
	}
}

// Cancel gives up the pulls that are still being read, for example when load arrives, and returns
// their IDs. Pulls being written or recorded continue, because they are short.
func (m *Maintainer) Cancel() []PullID {
	var out []PullID
	for _, p := range slices.Clone(m.pulls) {
		if p.stage == pulling {
			out = append(out, p.ID)
			m.stats.Cancelled++
			m.remove(p)
		}
	}
	return out
}

// Stop cancels, and prevents new pulls until Resume.
func (m *Maintainer) Stop() []PullID {
	m.stopped = true
	return m.Cancel()
}

// Resume allows Start to begin pulls again.
func (m *Maintainer) Resume() { m.stopped = false }

// Running returns the number of pulls in progress.
func (m *Maintainer) Running() int { return len(m.pulls) }

// Stats returns the counts so far.
func (m *Maintainer) Stats() MaintainerStats { return m.stats }

func (m *Maintainer) remove(p *pull) {
	m.pulls = slices.DeleteFunc(m.pulls, func(o *pull) bool { return o == p })
}

// BeginHomeWrite announces a write at home. It returns false if a pull is being written to the
// range; ask again after the next Landed or Failed.
func (m *Maintainer) BeginHomeWrite(o Object, r Range) (HomeWrite, bool) {
	for _, p := range m.pulls {
		if p.stage == landing && p.Object == o &&
			slices.ContainsFunc(p.ranges, func(l Range) bool { return l.Overlaps(r) }) {
			return 0, false
		}
	}
	m.nextOut++
	m.writes[o] = append(m.writes[o], homeWrite{m.nextOut, r})
	return m.nextOut, true
}

// EndHomeWrite records that a write at home is done and its record, if needed, is applied; or that
// the write failed and no part of it is in progress.
func (m *Maintainer) EndHomeWrite(o Object, id HomeWrite) {
	left := slices.DeleteFunc(m.writes[o], func(w homeWrite) bool { return w.id == id })
	if len(left) == 0 {
		delete(m.writes, o)
		return
	}
	m.writes[o] = left
}
