package burst

import (
	"context"
	"sync"
	"testing"
	"time"

	"hotbed/dataplane/tests/must"
	"hotbed/dataplane/tests/servertest"
	"hotbed/dataplane/twochoice/protocol"
)

func TestASummaryReportsWhatWasAcknowledged(t *testing.T) {
	r := Result{Took: 2 * time.Second, Processes: []time.Duration{time.Second, 0},
		Failed: []Failure{{Object: "f/9", Undecided: true}, {Object: "f/8"}}}
	for i := range 40 {
		r.Done = append(r.Done, Done{Size: 100, Target: protocol.Node(i % 2), Took: time.Duration(40-i) * time.Millisecond})
	}
	s := Summarize(r, 3)
	if s.Writes != 40 || s.Failed != 2 || s.Undecided != 1 || s.BytesPerSecond != 2000 {
		t.Errorf("%+v", s)
	}
	if s.ServerBytes[0] != 2000 || s.ServerBytes[1] != 2000 || s.ServerBytes[2] != 0 {
		t.Errorf("%v", s.ServerBytes)
	}
	if *s.Latency["p50"] != 0.021 || *s.Latency["max"] != 0.04 || s.Latency["p90"] != nil {
		t.Errorf("%v %v %v", *s.Latency["p50"], *s.Latency["max"], s.Latency["p90"])
	}
	if *s.ProcessSeconds[0] != 1 || s.ProcessSeconds[1] != nil {
		t.Errorf("%v", s.ProcessSeconds)
	}
}

func TestOptionsThatCannotBeAreOneSentence(t *testing.T) {
	good := Options{Nodes: 2, Processes: 2, Writes: 1, Size: 10, File: "f"}
	must.Succeed(t, good.Check())
	for want, change := range map[string]func(*Options){
		"0 nodes":         func(o *Options) { o.Nodes = 0 },
		"0 writes":        func(o *Options) { o.Writes = 0 },
		"name has 0":      func(o *Options) { o.File = "" },
		"first stripe is": func(o *Options) { o.Start = -1 },
	} {
		o := good
		change(&o)
		must.Refuse(t, o.Check(), want)
	}
}

// late counts the probers that have connected; the slow one connects late.
type late struct {
	all     *sync.Mutex
	waiting *int // probers not yet connected
	early   *int // probes before all had connected
	slow    bool
	asked   *int
}

func (l late) Probe(_ context.Context, nodes []protocol.Node, _ uint64) (int, error) {
	if *l.asked == 0 && l.slow {
		time.Sleep(50 * time.Millisecond)
	}
	l.all.Lock()
	defer l.all.Unlock()
	*l.asked++
	switch {
	case *l.asked == 1:
		*l.waiting--
	case *l.waiting > 0:
		*l.early++
	}
	return len(nodes), nil
}

func TestNobodyIsTimedBeforeAllHaveConnected(t *testing.T) {
	waiting, early, mu := 4, 0, sync.Mutex{}
	probers := make([]prober, 4)
	for i := range probers {
		probers[i] = late{all: &mu, waiting: &waiting, early: &early, slow: i == 0, asked: new(int)}
	}
	got, err := timed(t.Context(), probers, 2, 25, 1)
	if err != nil || got.Probes != 100 || got.Lost != 0 || got.Schedulers != 4 {
		t.Errorf("%+v %v", got, err)
	}
	if early != 0 {
		t.Errorf("%d probes were timed while others connected", early)
	}
}

func TestATableIsTimedWhileItChanges(t *testing.T) {
	const agents = 4
	c := servertest.Start(t, agents, servertest.Unmaintained).Cluster
	got, err := Table(t.Context(), c, TableOptions{Writers: 3, Writes: 60, Samples: 5, Object: 64 << 10, Seed: 1})
	must.Succeed(t, err)
	if len(got.Rows) != 5 || got.Queries != 60 || got.Creates < 10 || got.Creates > 60 {
		t.Errorf("%+v", got)
	}
	creates := 0
	for i, row := range got.Rows {
		creates += row.Creates
		if row.Entries < 1 || row.Entries > 200 || row.Query <= 0 || row.Pieces < 1 || (i > 0 && row.Writes <= got.Rows[i-1].Writes) {
			t.Errorf("row %d is %+v", i, row)
		}
	}
	if creates != got.Creates || got.CreateMax <= 0 || got.QueryMax <= 0 {
		t.Errorf("%d creates in rows of %+v", creates, got)
	}
}

func TestTableOptionsThatCannotBeAreOneSentence(t *testing.T) {
	for want, o := range map[string]TableOptions{
		"0 writers":            {Writes: 1, Samples: 1, Object: 1 << 20},
		"2 writes and 3 sampl": {Writers: 1, Writes: 2, Samples: 3, Object: 1 << 20},
		"the object has 1":     {Writers: 1, Writes: 2, Samples: 1, Object: 1},
	} {
		must.Refuse(t, o.Check(), want)
	}
}
