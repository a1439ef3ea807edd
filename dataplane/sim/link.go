package sim

import (
	"fmt"
	"math"
	"time"
)

// LinkSpec describes one direction of a link.
type LinkSpec struct {
	// Rate is in bytes per second; with +Inf serialization takes no time.
	Rate float64
	// Delay is the propagation delay.
	Delay time.Duration
}

// Link carries messages in one direction, in order: each is serialized at the rate, then delayed by
// the propagation delay. Nothing is lost: a partition holds messages back, like a connection that
// retransmits until it succeeds.
type Link struct {
	spec    LinkSpec
	extra   time.Duration // added to the delay
	free    time.Duration // end of the last message's serialization, on the link's clock
	last    time.Duration // arrival of the last message, on the link's clock
	transit ring[message]
	timer   Timer
	sent    int64 // bytes

	// The link's own clock stops while the link is cut: it is stood behind virtual time.
	stood time.Duration
	cutAt time.Duration
	cut   bool
}

type message struct {
	at  time.Duration // arrival, on the link's clock
	h   Handler
	arg uint64
}

// NewLink returns an idle link.
func NewLink(spec LinkSpec) *Link { return &Link{spec: spec} }

// clock returns the link's own time.
func (l *Link) clock(k *Kernel) time.Duration {
	if l.cut {
		return l.cutAt - l.stood
	}
	return k.Now() - l.stood
}

// Send puts a message of n bytes on the link; h.Handle(k, arg) is called at its arrival.
func (l *Link) Send(k *Kernel, n int64, h Handler, arg uint64) {
	if n < 0 {
		panic(fmt.Sprintf("sim: a message of %d bytes", n))
	}
	took := time.Duration(math.Round(float64(n) / l.spec.Rate * 1e9))
	l.free = max(l.clock(k), l.free) + took
	l.last = max(l.free+l.spec.Delay+l.extra, l.last)
	l.sent += n
	l.transit.push(message{l.last, h, arg})
	if l.transit.n == 1 && !l.cut {
		l.timer = k.At(l.last+l.stood, (*linkEnd)(l), 0)
	}
}

// linkEnd handles the arrival of the first message in transit.
type linkEnd Link

func (e *linkEnd) Handle(k *Kernel, _ uint64) {
	l := (*Link)(e)
	m := l.transit.pop()
	if l.transit.n > 0 {
		l.timer = k.At(l.transit.first().at+l.stood, e, 0)
	}
	m.h.Handle(k, m.arg)
}

// Cut partitions the link: nothing arrives until Heal. The partition delays all messages in
// transit, and messages sent meanwhile, by its length.
func (l *Link) Cut(k *Kernel) {
	if !l.cut {
		k.Cancel(l.timer)
		l.cut, l.cutAt = true, k.Now()
	}
}

// Heal ends a partition.
func (l *Link) Heal(k *Kernel) {
	if l.cut {
		l.cut = false
		l.stood += k.Now() - l.cutAt
		if l.transit.n > 0 {
			l.timer = k.At(l.transit.first().at+l.stood, (*linkEnd)(l), 0)
		}
	}
}

// Drop discards every message in transit without calling handlers, as after a crash of one end.
func (l *Link) Drop(k *Kernel) {
	if l.transit.n > 0 && !l.cut {
		k.Cancel(l.timer)
	}
	l.free = min(l.free, l.clock(k))
	l.last = min(l.last, l.clock(k))
	l.transit.clear()
}

// Delay adds d to the propagation delay of later messages (a delay fault); 0 ends it. Messages stay
// in order.
func (l *Link) Delay(d time.Duration) { l.extra = d }

// Sent returns the number of bytes sent.
func (l *Link) Sent() int64 { return l.sent }
