package ceph

import (
	"fmt"
	"math"
	"sort"
	"time"

	"hotbed/dataplane/sim"
)

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
