package twochoice

import (
	"slices"
	"time"
)

// Detector is a server's load detector (section V.D): it counts operations and bytes in flight,
// answers probes, preassigns what it expects to be chosen for (III.C), and remembers for a while what
// schedulers told it of other servers (III.B).
//
// A write goes Probe - Settle - Begin - End: Settle tells what the scheduler decided, Begin that the
// data came. Each may fail to come; what was preassigned then expires.
type Detector struct {
	p          Parameters
	self       Server
	acceptance *Acceptance
	now        time.Duration

	operations int64
	bytes      int64
	expected   float64 // preassigned, in the metric

	// Reservations in the order of their probes: that of ticket t is at first+t-head of the ring.
	reservations []reservation
	first, count int
	head         Ticket // of the first

	cache     []remembered
	latencies *latencies
	stats     DetectorStats
}

// DetectorStats counts what a detector did.
type DetectorStats struct {
	Probes   uint64 // answered
	Chosen   uint64 // for which the server was chosen
	Declined uint64
	Expired  uint64 // whose preassigned load expired
}

type state uint8

const (
	gone     state = iota // nothing of it is expected any more
	reserved              // the scheduler decides
	assigned              // it chose this server; the data is on its way
)

type reservation struct {
	until  time.Duration
	amount float64
	full   float64 // what the whole write adds
	bin    int32
	state  state
}

type remembered struct {
	reading Reading
	at      time.Duration
}

// NewDetector returns the detector of a server with nothing in flight. Acceptance may be shared with
// other servers; nil gives it one of its own. The first ticket is 1, or that of FirstTicket.
func NewDetector(p Parameters, self Server, acceptance *Acceptance) (*Detector, error) {
	p, err := p.checked()
	if err != nil {
		return nil, err
	}
	if acceptance == nil {
		acceptance = NewAcceptance(p.Preassign)
	}
	d := &Detector{p: p, self: self, acceptance: acceptance, head: 1}
	if p.Scheduler == Prequal {
		d.latencies = &latencies{}
	}
	return d, nil
}

// FirstTicket makes the next ticket this one: a server that starts again takes one far from those of
// its former life (of its start's time, say), so that a late answer names nothing. Call it before
// the first probe; 0 is no ticket.
func (d *Detector) FirstTicket(t Ticket) {
	if d.count == 0 && t > 0 {
		d.head = t
	}
}

// Acceptance is P(load) as this server has it.
func (d *Detector) Acceptance() *Acceptance { return d.acceptance }

// Operations and bytes in flight, without what is expected.
func (d *Detector) InFlight() (operations, bytes int64) { return d.operations, d.bytes }

// Load is what a probe is told: operations or bytes in flight, and what is expected to come.
func (d *Detector) Load() float64 { return float64(d.actual()) + d.expected }

// Stats are the counts so far.
func (d *Detector) Stats() DetectorStats { return d.stats }

func (d *Detector) actual() int64 {
	if d.p.Metric == Operations {
		return d.operations
	}
	return d.bytes
}

// Probe answers a probe for a write of so many bytes, and then preassigns it: the load becomes
// l' = l + P(l) len_io. `cached` gets what is remembered of other servers.
func (d *Detector) Probe(now time.Duration, bytes int64, cached []Reading) (Reading, []Reading) {
	d.advance(now)
	d.stats.Probes++
	load := d.Load()
	r := Reading{Server: d.self, Answered: true, InFlight: int32(d.operations), Load: load}
	if d.latencies != nil {
		r.Latency = d.latencies.expect(int(d.operations))
	}
	if d.p.Scheduler.Preassigns() {
		bin := d.acceptance.bin(load)
		full := float64(bytes)
		if d.p.Metric == Operations {
			full = 1
		}
		amount := d.acceptance.at(bin) * full
		d.expected += amount
		r.Ticket = d.reserve(reservation{until: d.now + time.Duration(d.p.Preassign.Lifetime),
			amount: amount, full: full, bin: int32(bin), state: reserved})
	}
	if d.p.Scheduler.Shares() {
		for i := range d.cache {
			if c := &d.cache[i]; d.now-c.at <= time.Duration(d.p.CacheLifetime) {
				cached = append(cached, c.reading)
			}
		}
	}
	return r, cached
}

// Settle tells what the scheduler decided for the probe of a ticket: until the data comes the whole
// write is expected, or nothing. P(load) learns from it. A ticket that is 0 or expired is nothing.
func (d *Detector) Settle(now time.Duration, t Ticket, chosen bool) {
	d.advance(now)
	r := d.of(t)
	if r == nil || r.state != reserved {
		return
	}
	d.acceptance.learn(int(r.bin), chosen)
	d.expected -= r.amount
	if !chosen {
		d.stats.Declined++
		r.state, r.amount = gone, 0
		d.trim()
		return
	}
	d.stats.Chosen++
	r.state, r.amount = assigned, r.full
	d.expected += r.amount
	r.until = d.now + time.Duration(d.p.Preassign.Lifetime)
}

// Begin tells that an operation came: what was preassigned for it is now in flight. The data of a
// write says itself that the server was chosen, when Settle did not.
func (d *Detector) Begin(now time.Duration, t Ticket, bytes int64) {
	d.advance(now)
	if r := d.of(t); r != nil && r.state != gone {
		if r.state == reserved {
			d.acceptance.learn(int(r.bin), true)
			d.stats.Chosen++
		}
		d.expected -= r.amount
		r.state, r.amount = gone, 0
		d.trim()
	}
	d.operations++
	d.bytes += bytes
}

// End tells that an operation is done that took so long since it came, and with how many in flight
// besides it came; 0 for a time that is not known.
func (d *Detector) End(now time.Duration, bytes int64, took time.Duration, besides int32) {
	d.advance(now)
	d.operations--
	d.bytes -= bytes
	if d.latencies != nil && took > 0 {
		d.latencies.add(int(besides), took)
	}
}

// Add puts load there that was not probed for, such as that of other clients (or takes it away).
func (d *Detector) Add(operations, bytes int64) {
	d.operations += operations
	d.bytes += bytes
}

// Tell passes on what a scheduler learned of other servers (section III.B, figure 5c). It counts
// from when it is told, by this server's own clock.
func (d *Detector) Tell(now time.Duration, readings []Reading) {
	d.advance(now)
	if d.p.CacheSize == 0 || !d.p.Scheduler.Shares() {
		return
	}
	for i := range readings {
		r := readings[i]
		if !r.Answered || r.Server == d.self {
			continue
		}
		r.Ticket = 0 // it is the scheduler's that probed
		at := slices.IndexFunc(d.cache, func(c remembered) bool { return c.reading.Server == r.Server })
		if at < 0 && len(d.cache) >= d.p.CacheSize {
			at = 0
		}
		if at >= 0 { // the oldest is the first
			d.cache = slices.Delete(d.cache, at, at+1)
		}
		d.cache = append(d.cache, remembered{r, d.now})
	}
}

// advance keeps time from going back (see Clock) and lets expire what is too old.
func (d *Detector) advance(now time.Duration) {
	d.now = max(d.now, now)
	for d.count > 0 {
		r := &d.reservations[d.first]
		if r.state == gone {
			d.drop()
			continue
		}
		if r.until > d.now {
			return
		}
		d.stats.Expired++
		d.expected -= r.amount
		r.state, r.amount = gone, 0
		d.drop()
	}
	d.expected = 0 // what rounding left of the sums
}

// trim drops what is gone at the front.
func (d *Detector) trim() {
	for d.count > 0 && d.reservations[d.first].state == gone {
		d.drop()
	}
	if d.count == 0 {
		d.expected = 0
	}
}

func (d *Detector) drop() {
	d.first = (d.first + 1) & (len(d.reservations) - 1)
	d.count--
	d.head++
}

func (d *Detector) reserve(r reservation) Ticket {
	if d.count == len(d.reservations) {
		grown := make([]reservation, max(8, 2*len(d.reservations))) // a power of two
		for i := range d.count {
			grown[i] = d.reservations[(d.first+i)&(len(d.reservations)-1)]
		}
		d.reservations, d.first = grown, 0
	}
	d.reservations[(d.first+d.count)&(len(d.reservations)-1)] = r
	d.count++
	return d.head + Ticket(d.count) - 1
}

// of is the reservation of a ticket, nil when it is no longer there.
func (d *Detector) of(t Ticket) *reservation {
	if t < d.head || t-d.head >= Ticket(d.count) {
		return nil
	}
	return &d.reservations[(d.first+int(t-d.head))&(len(d.reservations)-1)]
}
