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
//   - Only pulls write at home: a write that is placed there is redirected to a fragment, too.
//   - Until the return is recorded, readers use the other server, which keeps its fragment.
type Maintainer struct {
	p      MaintainerParameters
	table  *Table
	cursor Cursor
	pulls  []*pull
	next   PullID
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

// StageError reports a pull that does not exist or is at another stage.
type StageError struct {
	ID   PullID
	What string
}

func (e *StageError) Error() string {
	return fmt.Sprintf("pull %d is not %s; it is over", e.ID, e.What)
}

// NewMaintainer returns an idle maintainer of a table.
func NewMaintainer(p MaintainerParameters, t *Table) (*Maintainer, error) {
	if p.Workers < 1 || p.Workers > 1024 {
		return nil, &ParameterError{"maintainer.workers", strconv.Itoa(p.Workers), "1 to 1024"}
	}
	if p.Bytes == 0 {
		return nil, &ParameterError{"maintainer.bytes", "0", "1 and more"}
	}
	return &Maintainer{p: p, table: t}, nil
}

// searched limits the pieces that one Start examines.
const searched = 256

// Start begins pulls while workers are free and `idle` is true for both home and the other server.
// It cycles through all objects. Call it again when a server becomes idle or a pull is done.
func (m *Maintainer) Start(idle func(Server) bool, into []Pull) []Pull {
	if len(m.pulls) >= m.p.Workers || m.table.Len() == 0 || !idle(m.table.home) {
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
		into = append(into, p.Pull)
	}
	return into
}

// busy reports whether a range is being pulled.
func (m *Maintainer) busy(o Object, r Range) bool {
	return slices.ContainsFunc(m.pulls, func(p *pull) bool { return p.Object == o && p.Range.Overlaps(r) })
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
// entry. The caller must write these ranges at home durably. If there are none, the pull is over.
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
		if piece.Receipt == p.Receipt {
			p.ranges = append(p.ranges, piece.Range)
		}
	}
	if len(p.ranges) == 0 {
		m.remove(p)
		return nil, nil
	}
	p.stage = landing
	return p.ranges, nil
}

// Landed records that the ranges of a pull were written at home, durably. The caller must record
// the returns.
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
	m.remove(p)
	return nil
}

// Failed records that a pull could not be read, written or recorded, and that no part of it is in
// progress. A later round tries the pull again.
func (m *Maintainer) Failed(id PullID) {
	for _, p := range m.pulls {
		if p.ID == id {
			m.remove(p)
			return
		}
	}
}

func (m *Maintainer) remove(p *pull) {
	m.pulls = slices.DeleteFunc(m.pulls, func(o *pull) bool { return o == p })
}
