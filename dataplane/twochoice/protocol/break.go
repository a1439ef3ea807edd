package protocol

import "hotbed/dataplane/twochoice"

// Break is a way in which the protocol can be broken on purpose. The fault simulation has to find each
// of them: a comparison with a model that finds nothing proves nothing.
type Break uint8

// The breakages.
const (
	Sound Break = iota
	// AckBeforeSync answers a register when its record is in the log's buffer.
	AckBeforeSync
	// AckBeforeFragment answers a put when its bytes are on their way to the disk.
	AckBeforeFragment
	// ForgetRedirect acknowledges one register in eight that it does not record.
	ForgetRedirect
	// IgnoreTimestamps logs a maintainer's delete as of its end and not of its start (figure 10).
	IgnoreTimestamps
	// TwoMaintainers lets several maintainers work on one object.
	TwoMaintainers
	// DropEarly drops a pulled fragment before the record of its return is durable.
	DropEarly
	// OrderTwice orders a repeated register again.
	OrderTwice
	// NoFence removes a fragment that nobody registered without making that final.
	NoFence
	// StaleBase answers reads of the base whatever was written there since the query.
	StaleBase
	// ReadUnsynced shows writes to readers before their record is durable.
	ReadUnsynced
	// TrustMinMax answers queries outside [Min, Max] with "at home", as section V.B has it.
	TrustMinMax
	// BaseUnwritten takes what found no room in the base for written.
	BaseUnwritten
	// StuckWhenFull writes no record any more once there was no room to rewrite the log.
	StuckWhenFull
	// NoSplit writes over a part of what a sum of the base is of, and leaves the sum.
	NoSplit
	// OneLogCopy leaves the second copy of the log unwritten.
	OneLogCopy
	// UncheckedBase compares what is read of a base with nothing.
	UncheckedBase
	breaks
)

var breakNames = [breaks]string{"sound", "ack-before-sync", "ack-before-fragment", "forget-redirect",
	"ignore-timestamps", "two-maintainers", "drop-early", "order-twice", "no-fence", "stale-base",
	"read-unsynced", "trust-min-max", "base-unwritten", "stuck-when-full", "no-split", "one-log-copy",
	"unchecked-base"}

func (b Break) String() string { return breakNames[b] }

// Breaks are all of them, without Sound.
func Breaks() []Break {
	var out []Break
	for b := Sound + 1; b < breaks; b++ {
		out = append(out, b)
	}
	return out
}

// minMax is the Min/Max pair as section V.B has it, for TrustMinMax: a delete moves Min to the end of
// its range, though a later entry may be in it. The table's own hint is exact.
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

// query answers "at home" for what is outside the pair.
func (p *minMax) query(m Message, pieces []Piece) []Piece {
	if !p.set || m.To > p.min && m.From < p.max {
		return pieces
	}
	return []Piece{{From: m.From, To: m.To}}
}
