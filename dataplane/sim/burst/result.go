package burst

import (
	"fmt"
	"slices"

	"hotbed/dataplane/sim"
	"hotbed/dataplane/twochoice"
)

// Sources is the digest of the program's sources (testbed/closure.py), set by the linker.
var Sources string

// Messages counts messages by kind.
type Messages struct {
	Probes           int64 `json:"probes"`
	Answers          int64 `json:"answers"`
	Decisions        int64 `json:"decisions"` // to each probed server
	Writes           int64 `json:"writes"`
	Acknowledgements int64 `json:"acknowledgements"`
	Records          int64 `json:"records"` // to the home servers of redirected writes, and back
}

// Round is the result of one burst.
type Round struct {
	// ResponseS is the time from the burst's start to the last acknowledgement.
	ResponseS float64 `json:"response_s"`
	// MeanS is the mean over processes, each from its own start.
	MeanS float64 `json:"mean_s"`
	// BestS is a lower bound of the response: the same writes, placed optimally at once.
	BestS           float64  `json:"best_s"`
	Most            int64    `json:"most"`             // maximum writes given to a server
	CalmMost        int64    `json:"calm_most"`        // the same, without stragglers
	StragglerMost   int64    `json:"straggler_most"`   // of the stragglers
	StragglerWrites int64    `json:"straggler_writes"` // total writes given to stragglers
	Stragglers      int      `json:"stragglers"`
	RedirectedShare float64  `json:"redirected_share"`
	Messages        Messages `json:"messages"`

	redirected int64
}

// Load is the result for servers with this initial load, over the counted bursts (figure 4).
type Load struct {
	Load      int64 `json:"load"` // at the start of the burst; 0 for the stragglers' single entry
	Straggler bool  `json:"straggler"`
	// Servers is the mean number of such servers over all bursts, Bursts how many bursts had any.
	Servers float64 `json:"servers"`
	Bursts  int     `json:"bursts"`
	// Most is the mean over these bursts of the maximum writes given to one such server, Largest
	// the overall maximum, Mean the mean per server.
	Most    float64 `json:"most"`
	Largest int64   `json:"largest"`
	Mean    float64 `json:"mean"`

	given, found, most int64
}

// Point is one point of P(load) over all servers.
type Point struct {
	Load   float64 `json:"load"` // writes
	Seen   int64   `json:"told"` // probes answered with this load
	Chosen int64   `json:"chosen"`
}

// Trace is the data that another simulator needs to repeat the first counted burst.
type Trace struct {
	Loads  []int64   `json:"loads"`  // of the servers
	Probes [][]int32 `json:"probes"` // by node, in order
	Homes  []int32   `json:"homes"`  // by process
}

// Result is the result of a run.
type Result struct {
	Rounds   []Round `json:"rounds"`
	Learning []Round `json:"learning"`
	Loads    []Load  `json:"loads"`
	History  []Point `json:"history"`
	Events   uint64  `json:"-"`
	Trace    *Trace  `json:"trace,omitempty"`
}

// Run simulates all bursts of a valid run. The same parameters give the same result.
func Run(p Parameters) (*Result, error) {
	m, err := newModel(p)
	if err != nil {
		return nil, err
	}
	out := &Result{Rounds: []Round{}, Learning: []Round{}, Loads: []Load{}, History: []Point{}}
	for i := range p.LearnRounds {
		if err := m.burst(sim.StreamOf(p.Seed, "learning", uint64(i))); err != nil {
			return nil, err
		}
		out.Learning = append(out.Learning, m.round)
	}
	table := map[int64]*Load{}
	for i := range p.Rounds {
		if p.Forget {
			m.forget()
		}
		if err := m.burst(sim.StreamOf(p.Seed, "burst", uint64(i))); err != nil {
			return nil, err
		}
		out.Rounds = append(out.Rounds, m.round)
		m.tabulate(table)
		if p.Trace && i == 0 {
			out.Trace = m.trace()
		}
	}
	out.Loads = finish(table, p.Rounds)
	out.History = m.history()
	out.Events = m.k.Events()
	return out, nil
}

// close ends a burst: its result is in m.round.
func (m *model) close() error {
	r := &m.round
	writes := len(m.writes)
	r.ResponseS = (m.last - m.begun).Seconds()
	r.MeanS = m.total.Seconds() / float64(writes)
	r.BestS = (m.best(writes) + m.half).Seconds()
	r.RedirectedShare = float64(r.redirected) / float64(writes)
	given := int64(0)
	for i := range m.servers {
		s := &m.servers[i]
		given += s.given
		r.Most = max(r.Most, s.given)
		if s.straggler {
			r.StragglerMost = max(r.StragglerMost, s.given)
			r.StragglerWrites += s.given
		} else {
			r.CalmMost = max(r.CalmMost, s.given)
		}
	}
	if given != int64(writes) {
		return fmt.Errorf("burst: of %d writes the servers were given %d", writes, given)
	}
	return nil
}

// stragglersEntry is the key of the stragglers' entry.
const stragglersEntry = -1

// tabulate adds a burst to the table of figure 4.
func (m *model) tabulate(table map[int64]*Load) {
	for _, row := range table {
		row.most = -1
	}
	for i := range m.servers {
		s := &m.servers[i]
		key := s.load
		if s.straggler {
			key = stragglersEntry
		}
		row := table[key]
		if row == nil {
			row = &Load{Load: max(0, key), Straggler: s.straggler, most: -1}
			table[key] = row
		}
		row.found++
		row.given += s.given
		row.most = max(row.most, s.given)
	}
	for _, row := range table {
		if row.most >= 0 {
			row.Bursts++
			row.Most += float64(row.most)
			row.Largest = max(row.Largest, row.most)
		}
	}
}

// finish turns sums into means, ordered by load, stragglers last.
func finish(table map[int64]*Load, rounds int) []Load {
	out := make([]Load, 0, len(table))
	for _, row := range table {
		row.Servers = float64(row.found) / float64(rounds)
		row.Most /= float64(row.Bursts)
		row.Mean = float64(row.given) / float64(row.found)
		out = append(out, *row)
	}
	slices.SortFunc(out, func(a, b Load) int {
		if a.Straggler != b.Straggler {
			if a.Straggler {
				return 1
			}
			return -1
		}
		return int(a.Load - b.Load)
	})
	return out
}

// history sums P(load) over all servers.
func (m *model) history() []Point {
	out := []Point{}
	if !m.p.Scheduler.Preassigns() {
		return out
	}
	for _, d := range m.detectors {
		for _, point := range d.Curve() {
			bin := int(point.Load / WriteBytes)
			for bin >= len(out) {
				out = append(out, Point{Load: float64(len(out))})
			}
			out[bin].Seen += int64(point.Seen)
			out[bin].Chosen += int64(point.Chosen)
		}
	}
	return slices.DeleteFunc(out, func(p Point) bool { return p.Seen == 0 })
}

func (m *model) trace() *Trace {
	t := &Trace{Probes: make([][]int32, len(m.nodes))}
	for i := range m.servers {
		t.Loads = append(t.Loads, m.servers[i].load)
	}
	for i := range m.nodes {
		t.Probes[i] = []int32{}
		for _, p := range m.nodes[i].probes {
			t.Probes[i] = append(t.Probes[i], int32(p.Server))
		}
	}
	for i := range m.writes {
		t.Homes = append(t.Homes, int32(m.writes[i].Home))
	}
	return t
}

var _ twochoice.Random = (*sim.Stream)(nil)
