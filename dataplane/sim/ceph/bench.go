package ceph

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"time"

	"hotbed/dataplane/internal/limits"
	"hotbed/dataplane/sim"
)

// BenchSpec is a benchmark like rados bench: every client node keeps this many operations in
// flight. With op open, writes arrive at given rates instead.
type BenchSpec struct {
	Op          string  `json:"op"` // write, seq, rand or open
	ObjectSize  int64   `json:"object_size" limits:"1 268435456"`
	Concurrency int     `json:"concurrency" limits:"1 1048576"`
	Duration    float64 `json:"duration_s" limits:"1e-9 1e6"`
	Delay       float64 `json:"start_in_s" limits:"0 1e6"`

	Rates []float64 `json:"rates"`                   // of op open: writes per second by PG
	Drain float64   `json:"drain_s" limits:"0 3600"` // of op open: writes not done by then are outstanding
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

	// Reads: rados_replica_read_policy and crush_location as of the start, and draws of replicas.
	policy   string
	location []place
	replicas sim.Stream

	open    *openLoop // nil for other ops
	next    int64
	flight  int
	begun   bool
	done    bool
	stopped time.Duration // end of the last operation

	finished int64
	inTime   int64 // operations that finished no later than its end
	total    sim.Histogram
	second   benchSecond
	series   []float64 // by second from the start, see benchSecond.row
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

// benchSecond is one second of a benchmark: the operations that finished in it, and the sum of their
// latencies.
type benchSecond struct {
	finished int64
	latency  time.Duration
}

// row returns a second's row, with the operations in flight at its end.
func (s benchSecond) row(inFlight int) []float64 {
	return []float64{float64(s.finished), s.latency.Seconds(), float64(inFlight)}
}

// Start begins a benchmark after spec.Delay. No other benchmark may be in progress.
func (c *Cluster) Start(spec BenchSpec) error {
	switch {
	case c.bench != nil && !c.bench.done:
		return fmt.Errorf("a benchmark is under way")
	case spec.Op != "write" && spec.Op != "seq" && spec.Op != "rand" && spec.Op != "open":
		return fmt.Errorf("the benchmark is %q, not write, seq, rand or open", spec.Op)
	}
	if err := limits.Check(spec); err != nil {
		return err
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

		policy:   policyPrimary,
		replicas: *sim.NewStream(c.cfg.Seed, "ceph/replica-reads"),
	}
	c.k.After(sim.Seconds(spec.Delay), sim.Func(c.onBenchStart), 0)
	return nil
}

func (c *Cluster) onBenchStart(k *sim.Kernel, _ uint64) {
	b := c.bench
	b.begun, b.start = true, k.Now()
	b.end = b.start + sim.Seconds(b.spec.Duration)
	b.policy = c.monitor.options[optionPolicy]
	b.location, _ = locationOf(c.monitor.options[optionLocation])
	c.record.from = k.Now()
	for i := range b.slots {
		b.issue(c, int32(i))
	}
	if b.open != nil {
		b.open.begin(c)
	}
	k.After(time.Second, sim.Func(c.onBenchSecond), 0)
}

func (c *Cluster) onBenchSecond(k *sim.Kernel, _ uint64) {
	b := c.bench
	b.series = append(b.series, b.second.row(b.flight)...)
	b.second = benchSecond{}
	if b.open != nil {
		b.open.tick(b, k.Now())
	}
	if !b.done {
		k.After(time.Second, sim.Func(c.onBenchSecond), 0)
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

// send sends a slot's operation to its OSD, or waits for a primary.
func (b *bench) send(c *Cluster, i int32) {
	s := &b.slots[i]
	s.try++
	if old := c.at(s.last); old != nil && old.committed {
		c.freeOp(s.last) // a write with changed other members
	}
	osd := c.primary(s.pg)
	kind := opWrite
	if b.read {
		kind, osd = opRead, b.reader(c, c.node(i), s.pg)
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
	b.second.finished++
	b.second.latency += took
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

// seconds returns the time from the start to now or the end of the last operation.
func (b *bench) seconds(now time.Duration) float64 {
	switch {
	case !b.begun:
		return 0
	case b.done:
		now = b.stopped
	}
	return (now - b.start).Seconds()
}

// rows returns the series, with the last, partial second after the end.
func (b *bench) rows() []float64 {
	if b.done && b.second.finished > 0 {
		return append(slices.Clip(b.series), b.second.row(0)...)
	}
	return b.series
}

// openLoop is the additional state of a benchmark with independent writes. They arrive as a Poisson
// process, with a rate for each PG, and overwrite existing data.
type openLoop struct {
	upTo   []float64 // by PG: sum of its rate and those of all earlier PGs
	random sim.Stream
	where  sim.Stream // selects the object of a PG that a small write overwrites
	free   []int32
	second openSecond
	series []float64 // by second from the start, see openSecond.row
	// requests has a row for each write: its due time since the start, its latency, negative if it was
	// not done by the end, and its PG.
	requests []float64
}

// openSecond is one second of open-loop writes: the number due and done, and the sum and maximum of
// their latencies.
type openSecond struct {
	intended, finished int64
	latency, longest   time.Duration
}

// row returns a second's row, with the number in progress at its end and their maximum age.
func (s openSecond) row(outstanding int, oldest time.Duration) []float64 {
	return []float64{float64(s.intended), float64(s.finished), s.latency.Seconds(), s.longest.Seconds(),
		float64(outstanding), oldest.Seconds()}
}

// newOpenLoop checks the rates (writes a second by PG).
func newOpenLoop(c *Cluster, spec BenchSpec) (*openLoop, error) {
	if len(spec.Rates) != c.cfg.PGs {
		return nil, fmt.Errorf("%d rates for %d placement groups", len(spec.Rates), c.cfg.PGs)
	}
	o := &openLoop{
		upTo:   make([]float64, c.cfg.PGs),
		random: *sim.NewStream(c.cfg.Seed, "ceph/open"),
		where:  *sim.NewStream(c.cfg.Seed, "ceph/open/where"),
	}
	sum := 0.0
	for i, rate := range spec.Rates {
		if err := limits.Within("a rate in writes/s", rate, 0, 1e6); err != nil {
			return nil, err
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
	c.k.At(b.end+sim.Seconds(b.spec.Drain), sim.Func(c.onOpenEnd), 0)
	o.next(c)
}

func (o *openLoop) next(c *Cluster) {
	gap := o.random.Exp() / o.upTo[len(o.upTo)-1]
	c.k.After(sim.Seconds(gap), sim.Func(c.onDue), 0)
}

// onDue: a write is due.
func (c *Cluster) onDue(k *sim.Kernel, _ uint64) {
	b := c.bench
	if b.done || k.Now() >= b.end {
		return
	}
	o := b.open
	at := o.random.Uniform() * o.upTo[len(o.upTo)-1]
	pg := sort.Search(len(o.upTo)-1, func(i int) bool { return o.upTo[i] > at })
	o.second.intended++
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
	o.second.finished++
	o.second.latency += took
	o.second.longest = max(o.second.longest, took)
	o.requests = append(o.requests, (s.issued - b.start).Seconds(), took.Seconds(), float64(s.pg))
	o.free = append(o.free, i)
}

// tick ends a second.
func (o *openLoop) tick(b *bench, now time.Duration) {
	oldest := time.Duration(0)
	for i := range b.slots {
		if s := &b.slots[i]; s.busy {
			oldest = max(oldest, now-s.issued)
		}
	}
	o.series = append(o.series, o.second.row(b.flight, oldest)...)
	o.second = openSecond{}
}

// onOpenEnd: writes not done by now count as outstanding.
func (c *Cluster) onOpenEnd(k *sim.Kernel, _ uint64) {
	b := c.bench
	if b.done {
		return
	}
	for i := range b.slots {
		if s := &b.slots[i]; s.busy {
			b.open.requests = append(b.open.requests, (s.issued - b.start).Seconds(), time.Duration(-1).Seconds(),
				float64(s.pg))
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

// rows returns the series of open-loop writes, with the last, partial second after the end.
func (o *openLoop) rows(done bool) []float64 {
	if done && o.second != (openSecond{}) {
		return append(slices.Clip(o.series), o.second.row(0, 0)...)
	}
	return o.series
}
