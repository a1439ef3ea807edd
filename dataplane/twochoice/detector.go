package twochoice

import (
	"math"
	"slices"
	"time"
)

// Detector is a server's load detector (section V.D). It counts operations and bytes in flight,
// answers probes, preassigns expected writes (III.C), and caches for a while what schedulers report
// about other servers (III.B).
//
// A write goes Probe - Settle - Begin - End: Settle applies the scheduler's decision, Begin records
// the arrival of the data. Either call may never come; the preassignment then expires.
type Detector struct {
	p          Parameters
	self       Server
	acceptance acceptance
	now        time.Duration

	operations int64
	bytes      int64
	expected   float64 // preassigned, in the metric

	// Reservations in probe order: ticket t is at index first+t-head of the ring.
	reservations []reservation
	first, count int
	head         Ticket // ticket of the first

	cache     []cachedLoad
	latencies *latencies
}

type state uint8

const (
	gone     state = iota // nothing more is expected
	reserved              // the scheduler has not decided
	assigned              // the scheduler chose this server; the data is in transit
)

type reservation struct {
	until  time.Duration
	amount float64
	bin    int32
	state  state
}

type cachedLoad struct {
	reading Reading
	at      time.Duration // of the server's answer
}

// NewDetector returns the detector of a server with nothing in flight and the first ticket, above 0.
// A restarted server takes a ticket far from those before the restart (for example from its start
// time), so that a late answer matches no reservation. The caller has validated the parameters, once
// for all servers of a simulation.
func NewDetector(p Parameters, self Server, first Ticket) *Detector {
	d := &Detector{p: p, self: self, acceptance: acceptance{p: p.Preassign}, head: first}
	if p.Scheduler == Prequal {
		d.latencies = &latencies{}
	}
	return d
}

// InFlight returns the operations and bytes in flight, without the expected load.
func (d *Detector) InFlight() (operations, bytes int64) { return d.operations, d.bytes }

// Load returns the load that probes get: operations or bytes in flight plus the expected load.
func (d *Detector) Load() float64 { return float64(d.actual()) + d.expected }

func (d *Detector) actual() int64 {
	if d.p.Metric == Operations {
		return d.operations
	}
	return d.bytes
}

// Probe answers a probe for a write of this many bytes, and then preassigns the write: the load
// becomes l' = l + P(l) len_io. Cached loads of other servers are appended to `cached`.
func (d *Detector) Probe(now time.Duration, bytes int64, cached []Reading) (Reading, []Reading) {
	d.advance(now)
	load := d.Load()
	r := Reading{Server: d.self, Answered: true, InFlight: int32(d.operations), Load: load}
	if d.latencies != nil {
		r.Latency = d.latencies.expect(int(d.operations))
	}
	if d.p.Scheduler.Preassigns() {
		bin := d.acceptance.bin(load)
		r.Ticket = d.reserve(reservation{amount: d.acceptance.at(bin) * d.p.Metric.of(bytes), bin: int32(bin), state: reserved})
	}
	if d.p.Scheduler.Shares() {
		for i := range d.cache {
			c := d.cache[i]
			if c.reading.Age = d.now - c.at; c.reading.Age <= time.Duration(d.p.CacheLifetime) {
				cached = append(cached, c.reading)
			}
		}
	}
	return r, cached
}

// Settle applies the scheduler's decision for a ticket: a write of this many bytes is expected until
// its data comes, or with 0 bytes nothing. P(load) learns from the decision. An expired ticket has no
// effect. A server that is chosen without a ticket, by a remembered load, expects the write under the
// returned ticket.
func (d *Detector) Settle(now time.Duration, t Ticket, bytes int64) Ticket {
	d.advance(now)
	if t == 0 {
		if bytes == 0 || !d.p.Scheduler.Preassigns() {
			return 0
		}
		return d.reserve(reservation{amount: d.p.Metric.of(bytes), state: assigned})
	}
	r := d.of(t)
	if r == nil || r.state == gone {
		return t
	}
	if r.state == reserved {
		d.acceptance.learn(int(r.bin), bytes > 0)
	}
	d.expected -= r.amount
	if bytes == 0 {
		r.state, r.amount = gone, 0
		d.trim()
		return t
	}
	r.state, r.amount = assigned, d.p.Metric.of(bytes)
	d.expected += r.amount
	r.until = d.now + time.Duration(d.p.Preassign.Lifetime)
	return t
}

// Expects reports whether a ticket's write is still expected.
func (d *Detector) Expects(now time.Duration, t Ticket) bool {
	d.advance(now)
	r := d.of(t)
	return r != nil && r.state != gone
}

// Begin records that an operation arrived: its preassigned load is now in flight. If Settle did not
// come, the data itself shows that the server was chosen.
func (d *Detector) Begin(now time.Duration, t Ticket, bytes int64) {
	d.advance(now)
	if r := d.of(t); r != nil && r.state != gone {
		if r.state == reserved {
			d.acceptance.learn(int(r.bin), true)
		}
		d.expected -= r.amount
		r.state, r.amount = gone, 0
		d.trim()
	}
	d.operations++
	d.bytes += bytes
}

// End records that an operation is done. `took` is the time since its arrival, 0 if unknown;
// `besides` is the number of other operations in flight at its arrival.
func (d *Detector) End(now time.Duration, bytes int64, took time.Duration, besides int32) {
	d.advance(now)
	d.operations--
	d.bytes -= bytes
	if d.latencies != nil && took > 0 {
		d.latencies.add(int(besides), took)
	}
}

// Add adds load without a probe, such as load of other clients, or removes it.
func (d *Detector) Add(operations, bytes int64) {
	d.operations += operations
	d.bytes += bytes
}

// Remember caches loads of other servers that a scheduler passed on (section III.B, figure 5c). Of
// several loads of a server the freshest stays. Ages count by this server's own clock.
func (d *Detector) Remember(now time.Duration, readings []Reading) {
	d.advance(now)
	if d.p.CacheSize == 0 || !d.p.Scheduler.Shares() {
		return
	}
	for i := range readings {
		r := readings[i]
		if !r.Answered || r.Server == d.self {
			continue
		}
		r.Ticket = 0 // the ticket belongs to the probing scheduler
		answered := d.now - r.Age
		at := slices.IndexFunc(d.cache, func(c cachedLoad) bool { return c.reading.Server == r.Server })
		if at >= 0 && d.cache[at].at > answered {
			continue
		}
		if at < 0 && len(d.cache) >= d.p.CacheSize {
			at = 0
		}
		if at >= 0 { // the oldest reading is the first
			d.cache = slices.Delete(d.cache, at, at+1)
		}
		d.cache = append(d.cache, cachedLoad{r, answered})
	}
}

// advance keeps time from going back (see Clock) and expires old reservations.
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
		d.expected -= r.amount
		r.state, r.amount = gone, 0
		d.drop()
	}
	d.expected = 0 // remove rounding errors of the sums
}

// trim drops expired and settled reservations at the front.
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

// reserve expects a reservation's amount for a lifetime.
func (d *Detector) reserve(r reservation) Ticket {
	d.expected += r.amount
	r.until = d.now + time.Duration(d.p.Preassign.Lifetime)
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

// of returns the reservation of a ticket, or nil if it no longer exists.
func (d *Detector) of(t Ticket) *reservation {
	if t < d.head || t-d.head >= Ticket(d.count) {
		return nil
	}
	return &d.reservations[(d.first+int(t-d.head))&(len(d.reservations)-1)]
}

// maxBins bounds the number of load bins; larger loads share the last bin.
const maxBins = 4096

// fading is the number of probes of one load after which its older half counts half. P(load) thus
// follows a cluster that changes.
const fading = 1 << 14

// acceptance is P(load) of section III.C: the probability that a server that reported a load is
// chosen. Each load bin (a multiple of the unit) has its own probability: the share of probes
// answered with this load that chose the server, smoothed by the weighted prior.
type acceptance struct {
	p            PreassignParameters
	seen, chosen []uint32
}

// bin returns the bin of a load.
func (a *acceptance) bin(load float64) int {
	step := load / a.p.Unit
	if !(step > 0) {
		return 0
	}
	return int(math.Min(step, maxBins-1))
}

// at returns the probability of being chosen at a load of a bin.
func (a *acceptance) at(bin int) float64 {
	seen, chosen := 0.0, 0.0
	if bin < len(a.seen) {
		seen, chosen = float64(a.seen[bin]), float64(a.chosen[bin])
	}
	if seen+a.p.Weight == 0 {
		return a.p.Prior
	}
	return (chosen + float64(a.p.Prior*a.p.Weight)) / (seen + a.p.Weight)
}

// learn records whether a probe that was answered with the load of a bin chose the server.
func (a *acceptance) learn(bin int, chosen bool) {
	for bin >= len(a.seen) {
		a.seen, a.chosen = append(a.seen, 0), append(a.chosen, 0)
	}
	a.seen[bin]++
	if chosen {
		a.chosen[bin]++
	}
	if a.seen[bin] >= fading {
		a.seen[bin] /= 2
		a.chosen[bin] /= 2
	}
}

// AcceptancePoint is one point of the learned curve.
type AcceptancePoint struct {
	Load         float64 // lower bound of the bin
	Seen, Chosen uint32  // probes answered with this load, and those that chose the server
}

// Curve returns the learned points of P(load), one for each load that was ever reported.
func (d *Detector) Curve() []AcceptancePoint {
	var out []AcceptancePoint
	for bin, seen := range d.acceptance.seen {
		if seen > 0 {
			load := float64(float64(bin) * d.p.Preassign.Unit)
			out = append(out, AcceptancePoint{load, seen, d.acceptance.chosen[bin]})
		}
	}
	return out
}
