package protocol

import "hotbed/dataplane/twochoice"

// Break is a deliberate defect of the protocol. The fault simulation must find each defect, because
// a model comparison that finds nothing proves nothing.
type Break uint8

// The defects.
const (
	Sound Break = iota
	// AckBeforeSync answers a register while its record is still in the log's buffer.
	AckBeforeSync
	// AckBeforeFragment answers a put before its bytes are on the disk.
	AckBeforeFragment
	// ForgetRedirect acknowledges one register in eight without a record.
	ForgetRedirect
	// IgnoreTimestamps logs a maintainer's delete as of its end, not its start (figure 10).
	IgnoreTimestamps
	// TwoMaintainers lets several maintainers work on one object.
	TwoMaintainers
	// DropEarly drops a pulled fragment before the record of its return is durable.
	DropEarly
	// OrderTwice orders a repeated register again.
	OrderTwice
	// NoFence removes a fragment that nobody registered without fencing its write.
	NoFence
	// StaleBase answers reads of the base despite writes since the query.
	StaleBase
	// ReadUnsynced shows writes to readers before their record is durable.
	ReadUnsynced
	// TrustMinMax answers queries outside [Min, Max] with "at home", as in section V.B.
	TrustMinMax
	// BaseUnwritten treats a base write that found no space as done.
	BaseUnwritten
	// StuckWhenFull writes no more records after a log rewrite found no space.
	StuckWhenFull
	// NoSplit overwrites a part of a base sum's range without splitting the sum.
	NoSplit
	// OneLogCopy leaves the second copy of the log unwritten.
	OneLogCopy
	// UncheckedBase does not verify what is read from a base.
	UncheckedBase
	breaks
)

var breakNames = [breaks]string{"sound", "ack-before-sync", "ack-before-fragment", "forget-redirect",
	"ignore-timestamps", "two-maintainers", "drop-early", "order-twice", "no-fence", "stale-base",
	"read-unsynced", "trust-min-max", "base-unwritten", "stuck-when-full", "no-split", "one-log-copy",
	"unchecked-base"}

func (b Break) String() string { return breakNames[b] }

// Breaks returns all defects, without Sound.
func Breaks() []Break {
	var out []Break
	for b := Sound + 1; b < breaks; b++ {
		out = append(out, b)
	}
	return out
}

// minMax is the Min/Max pair of section V.B, for TrustMinMax: a delete moves Min to the end of its
// range, even past a later entry. The table's own hint is exact.
type minMax struct {
	min, max uint64
	set      bool
}

func (p *minMax) create(r twochoice.Range) {
	if !p.set {
		*p = minMax{r.Start, r.End, true}
	}
	p.min, p.max = min(p.min, r.Start), max(p.max, r.End)
}

func (p *minMax) remove(r twochoice.Range) {
	if p.set && r.Start <= p.min {
		p.min = r.End
	}
}

// query answers "at home" for ranges outside the pair.
func (p *minMax) query(m Message, pieces []Piece) []Piece {
	if !p.set || m.To > p.min && m.From < p.max {
		return pieces
	}
	return []Piece{{From: m.From, To: m.To}}
}
