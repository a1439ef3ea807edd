package replay

import (
	"io"
	"net/netip"
	"time"
)

// Options say how a trace is replayed.
type Options struct {
	Server      netip.AddrPort
	Local       netip.Addr // the address to come from, if valid
	Connections int
	Handle      []byte // of the file
	FileSize    int64
	Transfer    int // most bytes of one READ or WRITE; larger requests are several at once
	Stable      uint32
	Seed        uint64 // of offsets that the trace does not tell

	Speed float64       // 2 is twice as fast as the trace
	Start time.Time     // when the first request is due; zero for at once
	SLO   time.Duration // counts misses; 0 for none
	Drain time.Duration // how long after the last reply or arrival replies are waited for
	// Wait, when set, is how long after the last arrival replies are waited for at most. What is
	// not answered then is counted with the time that it has waited.
	Wait time.Duration

	Closed   int           // above 0: that many in flight, times of the trace do not count
	Repeat   bool          // closed: begin again at the end
	Duration time.Duration // closed: how long; open: requests due later are left out; 0 for all

	// Progress, when set, gets a line that is written over every second.
	Progress io.Writer
	// Log, when set, is called for each request at its end.
	Log func(at, latency time.Duration, read bool, size int64)
}
