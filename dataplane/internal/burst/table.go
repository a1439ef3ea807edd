package burst

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/protocol"
	"hotbed/dataplane/twochoice/server"
)

// TableOptions describe the timing of a redirect table (figure 12). Writers processes make Writes
// writes in total, each of a random range of one object of Object bytes, to a random server. After
// each write the home is asked for another random range. Samples is the number of rows.
type TableOptions struct {
	Writers, Writes, Samples int
	Object                   uint64
	Seed                     uint64
}

// leastRange is the smallest range that the default scheduler redirects.
const leastRange = 1 << 10

// Check returns a mistake as an error of one sentence.
func (o TableOptions) Check() error {
	switch {
	case o.Writers < 1 || o.Samples < 1 || o.Writes < o.Samples:
		return fmt.Errorf("%d writers, %d writes and %d samples; all are at least 1, and writes as many as samples",
			o.Writers, o.Writes, o.Samples)
	case o.Object < 4*leastRange || o.Object > protocol.MaxData:
		return fmt.Errorf("the object has %d bytes; allowed are %d to %d", o.Object, 4*leastRange, protocol.MaxData)
	}
	return nil
}

// TableRow is the table's state after a number of writes: its live entries, and the client's times
// of create and query requests since the previous row (s).
type TableRow struct {
	Writes  int     `json:"writes"`
	Entries int     `json:"entries"`
	Creates int     `json:"creates"`
	Create  float64 `json:"create_seconds"`
	Queries int     `json:"queries"`
	Query   float64 `json:"query_seconds"`
	Pieces  float64 `json:"pieces"` // per answer to a query
}

// Tabled is the result of timing a redirect table.
type Tabled struct {
	Rows      []TableRow `json:"rows"`
	CreateMax float64    `json:"create_max_seconds"`
	CreateP99 *float64   `json:"create_p99_seconds"`
	QueryMax  float64    `json:"query_max_seconds"`
	QueryP99  *float64   `json:"query_p99_seconds"`
	Creates   int        `json:"creates"`
	Queries   int        `json:"queries"`
	Seconds   float64    `json:"seconds"`
}

// tabling is a timing in progress.
type tabling struct {
	o      TableOptions
	client *server.Client
	prober *server.Prober
	object string
	home   protocol.Node
	before int // creates at the first write

	mu      sync.Mutex
	done    int
	queries []time.Duration
	pieces  int
	last    mark
	rows    []TableRow
	err     error
}

// mark holds the counts at the time of a row.
type mark struct{ creates, queries, pieces int }

// Table times the redirect table of an object.
func Table(ctx context.Context, c server.Cluster, o TableOptions) (Tabled, error) {
	if err := o.Check(); err != nil {
		return Tabled{}, err
	}
	c.Scheduler = twochoice.Defaults(twochoice.Uniform)
	client, err := server.Connect(c)
	if err != nil {
		return Tabled{}, err
	}
	defer client.Close()
	client.TimeSteps()
	prober, err := server.NewProber(c)
	if err != nil {
		return Tabled{}, err
	}
	defer prober.Close()
	t := &tabling{o: o, client: client, prober: prober, object: "table/0", home: c.Home("table/0")}
	if err := client.Ready(ctx); err != nil {
		return Tabled{}, err
	}
	if _, err := prober.Status(ctx, t.home); err != nil { // connects
		return Tabled{}, err
	}
	// Before the whole object exists, a range may be beyond its end.
	if _, err := client.Write(ctx, t.object, 0, make([]byte, o.Object)); err != nil {
		return Tabled{}, err
	}
	t.before = len(client.Steps(protocol.Register))
	t.last.creates = t.before
	start := time.Now()
	var all sync.WaitGroup
	for w := range o.Writers {
		all.Go(func() { t.run(ctx, rand.New(rand.NewPCG(o.Seed, uint64(w)))) })
	}
	all.Wait()
	return t.reported(time.Since(start)), t.err
}

// run is one writer.
func (t *tabling) run(ctx context.Context, random *rand.Rand) {
	data := make([]byte, t.o.Object)
	Fill(data, t.o.Seed, random.Uint64())
	for t.begin() {
		from, to := t.span(random)
		_, err := t.client.Write(ctx, t.object, from, data[from:to])
		if err == nil {
			err = t.query(ctx, random)
		}
		if err == nil {
			err = t.sample(ctx)
		}
		if err != nil {
			t.mu.Lock()
			t.err = err
			t.mu.Unlock()
			return
		}
	}
}

// begin returns true if another write remains, and counts it.
func (t *tabling) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil || t.done >= t.o.Writes {
		return false
	}
	t.done++
	return true
}

// span returns a random range of the object with ends that are not too close.
func (t *tabling) span(random *rand.Rand) (from, to uint64) {
	for {
		from, to = random.Uint64N(t.o.Object+1), random.Uint64N(t.o.Object+1)
		if from > to {
			from, to = to, from
		}
		if to-from >= leastRange {
			return from, to
		}
	}
}

func (t *tabling) query(ctx context.Context, random *rand.Rand) error {
	from, to := t.span(random)
	start := time.Now()
	pieces, err := t.prober.Query(ctx, t.home, t.object, from, to)
	took := time.Since(start)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queries = append(t.queries, took)
	t.pieces += pieces
	return err
}

// sample adds a row if enough writes were done since the last row.
func (t *tabling) sample(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.queries)
	if n < (len(t.rows)+1)*t.o.Writes/t.o.Samples {
		return nil
	}
	has, err := t.prober.Status(ctx, t.home)
	if err != nil {
		return err
	}
	creates := t.client.Steps(protocol.Register)
	now := mark{len(creates), n, t.pieces}
	row := TableRow{Writes: n, Entries: has.Entries, Creates: now.creates - t.last.creates,
		Queries: now.queries - t.last.queries, Create: Mean(creates[t.last.creates:]),
		Query: Mean(t.queries[t.last.queries:])}
	row.Pieces = float64(now.pieces-t.last.pieces) / float64(row.Queries)
	t.rows, t.last = append(t.rows, row), now
	return nil
}

func (t *tabling) reported(took time.Duration) Tabled {
	creates := t.client.Steps(protocol.Register)[t.before:]
	out := Tabled{Rows: t.rows, Creates: len(creates), Queries: len(t.queries), Seconds: took.Seconds()}
	out.CreateP99, out.CreateMax = sortedTail(creates)
	out.QueryP99, out.QueryMax = sortedTail(t.queries)
	return out
}

// Mean returns the mean of times in seconds, 0 of none.
func Mean(took []time.Duration) float64 {
	var sum time.Duration
	for _, t := range took {
		sum += t
	}
	return sum.Seconds() / float64(max(1, len(took)))
}

// sortedTail sorts took in place and returns its 99th percentile and maximum.
func sortedTail(took []time.Duration) (*float64, float64) {
	if len(took) == 0 {
		return nil, 0
	}
	slices.Sort(took)
	return Quantile(took, 0.99), took[len(took)-1].Seconds()
}
