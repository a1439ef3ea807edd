package twochoice

import (
	"errors"
	"fmt"
	"slices"

	"hotbed/dataplane/internal/limits"
)

// MaintainerParameters configures a server's metadata maintainer.
type MaintainerParameters struct {
	Workers int    `json:"workers" limits:"1 1024"` // concurrent pulls, the paper's threads: 2
	Bytes   uint64 `json:"bytes"`                   // maximum size of one pull: 4 MiB
}

// DefaultMaintainer returns the default parameters.
func DefaultMaintainer() MaintainerParameters { return MaintainerParameters{2, 4 << 20} }

// Pull is data to read from another server: Range of Object, at Location.
type Pull struct {
	Object   Object
	Range    Range
	Location Location
	Receipt  Receipt // receipt of the entry
	AsOf     Receipt // last receipt applied when the pull started
}

// Maintainer brings redirected data home while home and the other server are idle (section V.C).
// Maintainer only decides; its caller reads, writes and records:
//
//	pulls := m.Start(idle)     // read each pull from its server
//	ranges := m.Remaining(p)   // read: write these ranges at home, durably
//	                           // written: record a return of each (Table.Return), and apply it
//	m.End(p)                   // recorded, or given up at any stage: then the data stays redirected
//
// Nothing is lost when writers run concurrently:
//
//   - A write redirected meanwhile has a later receipt than the pull's AsOf, and stays (the
//     timestamp rule of figure 10). Bytes of the pulled entry overwritten before Remaining are not
//     written at home.
//   - Only pulls write at home: a write that is placed there is redirected to a fragment, too.
//   - Until the return is recorded, readers use the other server, which keeps its fragment.
type Maintainer struct {
	p      MaintainerParameters
	table  *Table
	cursor Cursor
	pulls  []*Pull
}

// NewMaintainer returns an idle maintainer of a table.
func NewMaintainer(p MaintainerParameters, t *Table) (*Maintainer, error) {
	if err := limits.Check(p); err != nil {
		return nil, fmt.Errorf("maintainer.%w", err)
	}
	if p.Bytes == 0 {
		return nil, errors.New("maintainer.bytes is 0; allowed is 1 and more")
	}
	return &Maintainer{p: p, table: t}, nil
}

// searched limits the pieces that one Start examines.
const searched = 256

// Start begins pulls while workers are free and `idle` is true for both home and the other server.
// It cycles through all objects. Call it again when a server becomes idle or a pull has ended.
func (m *Maintainer) Start(idle func(Server) bool) []*Pull {
	if len(m.pulls) >= m.p.Workers || m.table.Len() == 0 || !idle(m.table.home) {
		return nil
	}
	begun := len(m.pulls)
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
		if !slices.ContainsFunc(m.pulls, func(p *Pull) bool {
			return p.Object == e.Object && p.Range.Overlaps(piece.Range)
		}) {
			m.pulls = append(m.pulls, &Pull{e.Object, piece.Range, piece.Location, piece.Receipt, m.table.last})
		}
	}
	return slices.Clone(m.pulls[begun:])
}

// Remaining returns the ranges of a pull that still belong to its entry; none if all were
// overwritten.
func (m *Maintainer) Remaining(p *Pull) []Range {
	var out []Range
	for _, piece := range m.table.Query(p.Object, p.Range, nil) {
		if piece.Receipt == p.Receipt {
			out = append(out, piece.Range)
		}
	}
	return out
}

// End ends a pull. A later round tries again what is still redirected.
func (m *Maintainer) End(p *Pull) {
	m.pulls = slices.DeleteFunc(m.pulls, func(o *Pull) bool { return o == p })
}
