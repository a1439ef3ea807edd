package twochoice

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"
)

// Detector is a server's load detector (section V.D). It counts operations and bytes in flight,
// answers probes, preassigns expected writes (III.C), and caches for a while what schedulers report
// about other servers (III.B).
//
// A write goes Probe - Settle - Begin - End: Settle reports the scheduler's decision, Begin the
// arrival of the data. Either call may never come; the preassignment then expires.
type Detector struct {
	p          Parameters
	self       Server
	acceptance *Acceptance
	now        time.Duration

	operations int64
	bytes      int64
	expected   float64 // preassigned, in the metric

	// Reservations in probe order: ticket t is at index first+t-head of the ring.
	reservations []reservation
	first, count int
	head         Ticket // ticket of the first

	cache     []remembered
	latencies *latencies
	stats     DetectorStats
}

// DetectorStats counts what a detector did.
type DetectorStats struct {
	Probes   uint64 // answered
	Chosen   uint64 // probes for which the server was chosen
	Declined uint64
	Expired  uint64 // probes with an expired preassignment
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
	full   float64 // load of the whole write
	bin    int32
	state  state
}

type remembered struct {
	reading Reading
	at      time.Duration
}

// NewDetector returns the detector of a server with nothing in flight. Servers may share an
// Acceptance; nil creates a new one. The first ticket is 1 unless FirstTicket sets it.
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

// FirstTicket sets the next ticket. A restarted server takes one far from the tickets before the
// restart (for example from its start time), so that a late answer matches no reservation. Call it
// before the first probe; 0 is no ticket.
func (d *Detector) FirstTicket(t Ticket) {
	if d.count == 0 && t > 0 {
		d.head = t
	}
}

// Acceptance returns the server's P(load).
func (d *Detector) Acceptance() *Acceptance { return d.acceptance }

// InFlight returns the operations and bytes in flight, without the expected load.
func (d *Detector) InFlight() (operations, bytes int64) { return d.operations, d.bytes }

// Load returns the load that probes get: operations or bytes in flight plus the expected load.
func (d *Detector) Load() float64 { return float64(d.actual()) + d.expected }

// Stats returns the counts so far.
func (d *Detector) Stats() DetectorStats { return d.stats }

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

// Settle applies the scheduler's decision for a ticket: the whole write is expected until its data
// comes, or nothing. P(load) learns from the decision. A ticket that is 0 or expired has no effect.
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

// Begin records that an operation arrived: its preassigned load is now in flight. If Settle did not
// come, the data itself shows that the server was chosen.
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

// Tell caches what a scheduler learned about other servers (section III.B, figure 5c). The cache
// lifetime starts at this call, by this server's own clock.
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
		r.Ticket = 0 // the ticket belongs to the probing scheduler
		at := slices.IndexFunc(d.cache, func(c remembered) bool { return c.reading.Server == r.Server })
		if at < 0 && len(d.cache) >= d.p.CacheSize {
			at = 0
		}
		if at >= 0 { // the oldest reading is the first
			d.cache = slices.Delete(d.cache, at, at+1)
		}
		d.cache = append(d.cache, remembered{r, d.now})
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
		d.stats.Expired++
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

// Acceptance is P(load) of section III.C: the probability that a server that reported a load is
// chosen. Each load bin (a multiple of the unit) has its own probability: the share of probes
// answered with this load that chose the server, smoothed by the weighted prior. It learns until it
// is frozen. One Acceptance serves one server, as in the paper, or many similar servers.
type Acceptance struct {
	unit, prior, weight float64
	frozen              bool
	told, chosen        []uint32
}

// NewAcceptance returns an Acceptance that has learned nothing.
func NewAcceptance(p PreassignParameters) *Acceptance {
	return &Acceptance{unit: p.Unit, prior: p.Prior, weight: p.Weight}
}

// Freeze stops learning, or resumes it.
func (a *Acceptance) Freeze(frozen bool) { a.frozen = frozen }

// Frozen reports whether learning is stopped.
func (a *Acceptance) Frozen() bool { return a.frozen }

// bin returns the bin of a load.
func (a *Acceptance) bin(load float64) int {
	step := load / a.unit
	if !(step > 0) {
		return 0
	}
	return int(math.Min(step, maxBins-1))
}

// P returns the probability of being chosen at a load.
func (a *Acceptance) P(load float64) float64 { return a.at(a.bin(load)) }

func (a *Acceptance) at(bin int) float64 {
	told, chosen := 0.0, 0.0
	if bin < len(a.told) {
		told, chosen = float64(a.told[bin]), float64(a.chosen[bin])
	}
	if told+a.weight == 0 {
		return a.prior
	}
	return (chosen + float64(a.prior*a.weight)) / (told + a.weight)
}

// learn records whether a probe that was answered with the load of a bin chose the server.
func (a *Acceptance) learn(bin int, chosen bool) {
	if a.frozen {
		return
	}
	for bin >= len(a.told) {
		a.told, a.chosen = append(a.told, 0), append(a.chosen, 0)
	}
	a.told[bin]++
	if chosen {
		a.chosen[bin]++
	}
	if a.told[bin] >= fading {
		a.told[bin] /= 2
		a.chosen[bin] /= 2
	}
}

// AcceptancePoint is one point of the learned curve.
type AcceptancePoint struct {
	Load   float64 `json:"load"`   // lower bound of the bin
	Told   uint32  `json:"told"`   // probes answered with this load
	Chosen uint32  `json:"chosen"` // probes that chose the server
	P      float64 `json:"p"`
}

// Curve returns the learned points, one for each load that was ever reported.
func (a *Acceptance) Curve() []AcceptancePoint {
	var out []AcceptancePoint
	for bin, told := range a.told {
		if told > 0 {
			out = append(out, AcceptancePoint{float64(float64(bin) * a.unit), told, a.chosen[bin], a.at(bin)})
		}
	}
	return out
}

// Clone returns an independent copy.
func (a *Acceptance) Clone() *Acceptance {
	out := *a
	out.told = append([]uint32(nil), a.told...)
	out.chosen = append([]uint32(nil), a.chosen...)
	return &out
}

// acceptanceFile is the JSON form of an Acceptance.
type acceptanceFile struct {
	Version int      `json:"version"`
	Unit    float64  `json:"unit"`
	Prior   float64  `json:"prior"`
	Weight  float64  `json:"weight"`
	Frozen  bool     `json:"frozen"`
	Told    []uint32 `json:"told"`
	Chosen  []uint32 `json:"chosen"`
}

// MarshalJSON writes the whole learned state.
func (a *Acceptance) MarshalJSON() ([]byte, error) {
	return json.Marshal(acceptanceFile{1, a.unit, a.prior, a.weight, a.frozen, a.told, a.chosen})
}

// UnmarshalJSON reads the learned state. On an error the receiver is unchanged.
func (a *Acceptance) UnmarshalJSON(text []byte) error {
	var f acceptanceFile
	if err := json.Unmarshal(text, &f); err != nil {
		return fmt.Errorf("P(load) cannot be read: %w", err)
	}
	bad := f.Version != 1 || !(f.Unit > 0) || !(f.Prior >= 0 && f.Prior <= 1) || !(f.Weight >= 0) ||
		len(f.Told) != len(f.Chosen) || len(f.Told) > maxBins
	for i := range min(len(f.Told), len(f.Chosen)) {
		bad = bad || f.Chosen[i] > f.Told[i]
	}
	if bad {
		return fmt.Errorf("P(load) cannot be read: it is of version %d, and wanted is version 1 with a "+
			"unit above 0, a prior of 0 to 1 and no load chosen more often than told; learn it anew",
			f.Version)
	}
	*a = Acceptance{f.Unit, f.Prior, f.Weight, f.Frozen, f.Told, f.Chosen}
	return nil
}
