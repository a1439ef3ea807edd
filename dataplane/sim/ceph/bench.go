package ceph

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"time"

	"hotbed/dataplane/sim"
)

// BenchSpec is a benchmark like rados bench: every client node keeps this many operations in
// flight. With op open, writes arrive at given rates instead (open.go).
type BenchSpec struct {
	Op          string  `json:"op"` // write, seq, rand or open
	ObjectSize  int64   `json:"object_size"`
	Concurrency int     `json:"concurrency"`
	Duration    float64 `json:"duration_s"`
	Delay       float64 `json:"start_in_s"`

	Rates []float64 `json:"rates"`   // of op open: writes per second by PG
	Drain float64   `json:"drain_s"` // of op open: writes not done by then are outstanding
}

// bench is a benchmark in progress.
type bench struct {
	spec    BenchSpec
	read    bool
	start   time.Duration
	end     time.Duration // no operation starts at or after it
	random  sim.Stream
	slots   []slot
	perNode int
	open    *openLoop // nil for other ops
	next    int64
	flight  int
	begun   bool
	done    bool
	stopped time.Duration // end of the last operation

	finished int64
	inTime   int64 // operations that finished no later than its end
	total    sim.Histogram
	second   BenchSecond
	series   []BenchSecond
}

// slot is one client operation in flight.
type slot struct {
	busy   bool
	try    uint32
	pg     int32
	object int64
	issued time.Duration

	departed bool // its operation was sent
	last     ref  // its operation at an OSD
}

// BenchSecond is one second of a benchmark: the operations that finished in it, the sum of their
// latencies, and the operations in flight at its end.
type BenchSecond struct {
	Finished int64
	Latency  time.Duration
	InFlight int
}

// Start begins a benchmark after spec.Delay. No other benchmark may be in progress.
func (c *Cluster) Start(spec BenchSpec) error {
	switch {
	case c.bench != nil && !c.bench.done:
		return fmt.Errorf("a benchmark is under way")
	case spec.Op != "write" && spec.Op != "seq" && spec.Op != "rand" && spec.Op != "open":
		return fmt.Errorf("the benchmark is %q, not write, seq, rand or open", spec.Op)
	case spec.ObjectSize < 1 || spec.ObjectSize > 1<<28:
		return fmt.Errorf("objects of %d bytes, allowed is 1 to %d", spec.ObjectSize, 1<<28)
	case spec.Concurrency < 1 || spec.Concurrency > 1<<20:
		return fmt.Errorf("%d operations in flight, allowed is 1 to %d", spec.Concurrency, 1<<20)
	case !(spec.Duration > 0 && spec.Duration <= 1e6):
		return fmt.Errorf("a duration of %g s, allowed is above 0 to 1e6 s", spec.Duration)
	case !(spec.Delay >= 0 && spec.Delay <= 1e6):
		return fmt.Errorf("a start in %g s, allowed is 0 to 1e6 s", spec.Delay)
	}
	read := spec.Op == "seq" || spec.Op == "rand"
	if read && (c.objects.count == 0 || c.objects.bytes != spec.ObjectSize) {
		return fmt.Errorf("the pool holds %d objects of %d bytes: fill in objects of %d bytes first",
			c.objects.count, c.objects.bytes, spec.ObjectSize)
	}
	var open *openLoop
	slots := spec.Concurrency * c.cfg.Clients
	if spec.Op == "open" {
		var err error
		if open, err = newOpenLoop(c, spec); err != nil {
			return err
		}
		slots = 0
	}
	c.bench = &bench{
		spec: spec, read: read,
		random:  *sim.NewStream(c.cfg.Seed, "ceph/bench/"+spec.Op),
		slots:   make([]slot, slots),
		perNode: spec.Concurrency,
		open:    open,
	}
	c.k.After(sim.Seconds(spec.Delay), (*onBenchStart)(c), 0)
	return nil
}

type onBenchStart Cluster

func (h *onBenchStart) Handle(k *sim.Kernel, _ uint64) {
	c := (*Cluster)(h)
	b := c.bench
	b.begun, b.start = true, k.Now()
	b.end = b.start + sim.Seconds(b.spec.Duration)
	c.record.zero(c)
	for i := range b.slots {
		b.issue(c, int32(i))
	}
	if b.open != nil {
		b.open.begin(c)
	}
	k.After(time.Second, (*onBenchSecond)(c), 0)
}

type onBenchSecond Cluster

func (h *onBenchSecond) Handle(k *sim.Kernel, _ uint64) {
	c := (*Cluster)(h)
	b := c.bench
	b.second.InFlight = b.flight
	b.series = append(b.series, b.second)
	b.second = BenchSecond{}
	if b.open != nil {
		b.open.tick(b, k.Now())
	}
	if !b.done {
		k.After(time.Second, h, 0)
	}
}

// node returns the client of a benchmark's slot.
func (c *Cluster) node(slot int32) int {
	if c.bench.open != nil {
		return int(slot) % len(c.clients)
	}
	return int(slot) / c.bench.perNode
}

// current reports whether a client still waits for this try of its operation.
func (b *bench) current(p *op) bool {
	s := &b.slots[p.slot]
	return s.busy && s.try == p.try
}

// issue starts a slot's next operation.
func (b *bench) issue(c *Cluster, i int32) {
	s := &b.slots[i]
	s.busy, s.issued = true, c.k.Now()
	b.flight++
	switch b.spec.Op {
	case "seq":
		s.object = b.next % c.objects.count
		b.next++
		s.pg = c.objects.pg[s.object]
	case "rand":
		s.object = b.random.IntN(c.objects.count)
		s.pg = c.objects.pg[s.object]
	default:
		s.object = b.next
		b.next++
		s.pg = c.osdMap.pgOf(c.newName(c.node(i), s.object))
	}
	b.enter(c, i)
}

// enter sends a slot's operation, unless its client has too many bytes in flight.
func (b *bench) enter(c *Cluster, i int32) {
	n := &c.clients[c.node(i)]
	if n.flight > 0 && n.flight+b.spec.ObjectSize > c.cfg.ClientBytes {
		n.waiting = append(n.waiting, i)
		return
	}
	b.depart(c, i)
}

// depart sends a slot's operation for the first time.
func (b *bench) depart(c *Cluster, i int32) {
	c.clients[c.node(i)].flight += b.spec.ObjectSize
	b.slots[i].departed = true
	b.send(c, i)
}

// newName returns the name of an object that a client writes.
func (c *Cluster) newName(node int, object int64) []byte {
	name := append(make([]byte, 0, 64), "benchmark_data_client"...)
	name = strconv.AppendInt(name, int64(node), 10)
	name = append(name, '_')
	name = strconv.AppendUint(name, c.cfg.Seed%32768, 10)
	name = append(name, "_object"...)
	return strconv.AppendInt(name, object, 10)
}

// send sends a slot's operation to its PG's primary, or waits for a primary.
func (b *bench) send(c *Cluster, i int32) {
	s := &b.slots[i]
	s.try++
	if old := c.at(s.last); old != nil && old.committed {
		c.freeOp(s.last) // a write with changed other members
	}
	osd := c.primary(s.pg)
	kind := opWrite
	if b.read {
		kind = opRead
	}
	r, p := c.newOp(kind, s.pg, osd)
	s.last = r
	p.slot, p.try, p.bytes = i, s.try, b.spec.ObjectSize
	if osd == none {
		state := &c.pgs[s.pg]
		state.waiting = append(state.waiting, r)
		return
	}
	b.route(c, r, p)
}

// route sends an operation to its OSD.
func (b *bench) route(c *Cluster, r ref, p *op) {
	o := c.osds[p.osd]
	if b.read {
		p.offset = c.place(o, b.slots[p.slot].object, p.bytes)
		if o.cut {
			o.held = append(o.held, heldMessage{r, 0, c.cfg.ClientRate})
			return
		}
		c.k.After(sim.Seconds(c.cfg.Delay), (*onArrive)(c), uint64(r))
		return
	}
	p.offset = c.overwrite(o, p.bytes)
	n := &c.clients[c.node(p.slot)]
	n.outFree = max(n.outFree, c.k.Now()) + sim.Seconds(float64(p.bytes)/c.cfg.ClientRate)
	c.k.At(n.outFree+sim.Seconds(c.cfg.Delay), (*onWritten)(c), uint64(r))
}

// complete counts a finished operation and starts the next.
func (b *bench) complete(c *Cluster, i int32) {
	if b.done {
		return // already counted as outstanding
	}
	now := c.k.Now()
	s := &b.slots[i]
	took := now - s.issued
	s.busy, s.departed = false, false
	b.flight--
	n := &c.clients[c.node(i)]
	if n.flight -= b.spec.ObjectSize; len(n.waiting) > 0 {
		next := n.waiting[0]
		n.waiting = n.waiting[:copy(n.waiting, n.waiting[1:])]
		b.depart(c, next)
	}
	b.finished++
	if now <= b.end {
		b.inTime++
	}
	b.total.Add(took)
	b.second.Finished++
	b.second.Latency += took
	if b.open != nil {
		b.open.completed(b, i, took)
	} else if now < b.end {
		b.issue(c, i)
	}
	if now >= b.end && b.flight == 0 {
		b.done, b.stopped = true, now
		c.k.Halt()
	}
}

// BenchResult is the result of a benchmark. Seconds lasts until the end of the last operation.
// InTime counts the operations that finished within the benchmark's own time. Series has one entry
// per second from the start.
type BenchResult struct {
	Begun, Done bool
	Start       time.Duration
	Seconds     float64
	Finished    int64
	InTime      int64
	Bytes       int64
	Latency     *sim.Histogram
	Series      []BenchSecond
}

// Result returns the current or finished benchmark's result; false if there was none.
func (c *Cluster) Result() (BenchResult, bool) {
	b := c.bench
	if b == nil {
		return BenchResult{}, false
	}
	end := c.k.Now()
	if b.done {
		end = b.stopped
	}
	r := BenchResult{
		Begun: b.begun, Done: b.done, Start: b.start, Finished: b.finished,
		InTime: b.inTime, Bytes: b.finished * b.spec.ObjectSize, Latency: &b.total, Series: b.series,
	}
	if b.begun {
		r.Seconds = (end - b.start).Seconds()
	}
	if b.done && b.second.Finished > 0 {
		r.Series = append(r.Series[:len(r.Series):len(r.Series)], b.second)
	}
	return r, true
}

// openLoop is the additional state of a benchmark with independent writes. They arrive as a Poisson
// process, with a rate for each PG, and overwrite existing data.
type openLoop struct {
	upTo     []float64 // by PG: sum of its rate and those of all earlier PGs
	random   sim.Stream
	where    sim.Stream // selects the object of a PG that a small write overwrites
	free     []int32
	second   OpenSecond
	series   []OpenSecond
	requests []OpenRequest
}

// OpenSecond is one second of open-loop writes: the number due and done, the sum and maximum of
// their latencies, the number in progress at its end, and their maximum age.
type OpenSecond struct {
	Intended, Finished int64
	Latency, Longest   time.Duration
	Outstanding        int64
	Oldest             time.Duration
}

// OpenRequest is one write: its due time since the start, and its latency, which is negative if the
// write was not done by the end.
type OpenRequest struct {
	At, Latency time.Duration
	PG          int32
}

// newOpenLoop checks the rates (writes a second by PG).
func newOpenLoop(c *Cluster, spec BenchSpec) (*openLoop, error) {
	if len(spec.Rates) != c.cfg.PGs {
		return nil, fmt.Errorf("%d rates for %d placement groups", len(spec.Rates), c.cfg.PGs)
	}
	if !(spec.Drain >= 0 && spec.Drain <= 3600) {
		return nil, fmt.Errorf("a drain of %g s, allowed is 0 to 3600 s", spec.Drain)
	}
	o := &openLoop{
		upTo:   make([]float64, c.cfg.PGs),
		random: *sim.NewStream(c.cfg.Seed, "ceph/open"),
		where:  *sim.NewStream(c.cfg.Seed, "ceph/open/where"),
	}
	sum := 0.0
	for i, rate := range spec.Rates {
		if !(rate >= 0 && rate <= 1e6) {
			return nil, fmt.Errorf("a rate of %g writes/s, allowed is 0 to 1e6", rate)
		}
		sum += rate
		o.upTo[i] = sum
	}
	if sum == 0 {
		return nil, fmt.Errorf("every placement group has the rate 0")
	}
	return o, nil
}

// begin schedules the first write.
func (o *openLoop) begin(c *Cluster) {
	b := c.bench
	c.k.At(b.end+sim.Seconds(b.spec.Drain), (*onOpenEnd)(c), 0)
	o.next(c)
}

func (o *openLoop) next(c *Cluster) {
	gap := o.random.Exp() / o.upTo[len(o.upTo)-1]
	c.k.After(sim.Seconds(gap), (*onDue)(c), 0)
}

// onDue: a write is due.
type onDue Cluster

func (h *onDue) Handle(k *sim.Kernel, _ uint64) {
	c := (*Cluster)(h)
	b := c.bench
	if b.done || k.Now() >= b.end {
		return
	}
	o := b.open
	at := o.random.Uniform() * o.upTo[len(o.upTo)-1]
	pg := sort.Search(len(o.upTo)-1, func(i int) bool { return o.upTo[i] > at })
	o.second.Intended++
	b.enterNew(c, int32(pg))
	o.next(c)
}

// enterNew starts one write.
func (b *bench) enterNew(c *Cluster, pg int32) {
	o := b.open
	var i int32
	if n := len(o.free); n > 0 {
		i = o.free[n-1]
		o.free = o.free[:n-1]
	} else {
		b.slots = append(b.slots, slot{})
		i = int32(len(b.slots) - 1)
	}
	s := &b.slots[i]
	s.busy, s.issued, s.pg = true, c.k.Now(), pg
	b.flight++
	b.enter(c, i)
}

// completed counts a finished write and frees its slot.
func (o *openLoop) completed(b *bench, i int32, took time.Duration) {
	s := &b.slots[i]
	o.second.Finished++
	o.second.Latency += took
	o.second.Longest = max(o.second.Longest, took)
	o.requests = append(o.requests, OpenRequest{s.issued - b.start, took, s.pg})
	o.free = append(o.free, i)
}

// tick ends a second.
func (o *openLoop) tick(b *bench, now time.Duration) {
	o.second.Outstanding = int64(b.flight)
	for i := range b.slots {
		if s := &b.slots[i]; s.busy {
			o.second.Oldest = max(o.second.Oldest, now-s.issued)
		}
	}
	o.series = append(o.series, o.second)
	o.second = OpenSecond{}
}

// onOpenEnd: writes not done by now count as outstanding.
type onOpenEnd Cluster

func (h *onOpenEnd) Handle(k *sim.Kernel, _ uint64) {
	c := (*Cluster)(h)
	b := c.bench
	if b.done {
		return
	}
	for i := range b.slots {
		if s := &b.slots[i]; s.busy {
			b.open.requests = append(b.open.requests, OpenRequest{s.issued - b.start, -1, s.pg})
		}
	}
	b.done, b.stopped = true, k.Now()
	k.Halt()
}

// FillEach creates `count` objects of `bytes` in every PG, in place of an earlier filling.
func (c *Cluster) FillEach(count, bytes int64) error {
	if count < 1 || bytes < 1 || count > math.MaxInt32 {
		return fmt.Errorf("%d objects of %d bytes a placement group cannot be filled in", count, bytes)
	}
	all := count * int64(c.cfg.PGs)
	return c.fill(all, bytes, func(i int64) int32 { return int32(i / count) })
}

// Open returns the results of open-loop writes; false if there were none.
func (c *Cluster) Open() (series []OpenSecond, requests []OpenRequest, there bool) {
	if c.bench == nil || c.bench.open == nil {
		return nil, nil, false
	}
	o := c.bench.open
	series = o.series
	if c.bench.done && o.second != (OpenSecond{}) {
		series = append(series[:len(series):len(series)], o.second) // a partial second
	}
	return series, o.requests, true
}

// PGWork returns the number of client operations that a PG has served.
func (c *Cluster) PGWork(i int) (reads, writes int64) { return c.pgs[i].reads, c.pgs[i].writes }

// OSDWork returns the number of an OSD's operations, including those of its replicas.
func (c *Cluster) OSDWork(i int) (reads, writes int64) {
	o := c.osds[i]
	return o.reads, o.writes + o.replicas
}

// Clean reports whether a PG serves and all its data is where the map wants it.
func (c *Cluster) Clean(i int) bool {
	state := &c.pgs[i]
	return state.active && state.hold == nil && state.moves == 0
}
