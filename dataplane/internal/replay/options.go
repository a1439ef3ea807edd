package replay

import (
	"io"
	"net/netip"
	"time"
)

// Options describe how to replay a trace.
type Options struct {
	Server      netip.AddrPort
	Local       netip.Addr // the source address, if valid
	Connections int
	Handle      []byte // of the file
	FileSize    int64
	Transfer    int // most bytes of one READ or WRITE; larger requests are several in parallel
	Stable      uint32
	Seed        uint64 // of offsets that the trace does not give

	Speed float64       // 2 is twice as fast as the trace
	Start time.Time     // when the first request is due; zero for at once
	SLO   time.Duration // counts misses; 0 for none
	Drain time.Duration // how long to wait for replies after the last reply or arrival
	// Wait, if set, bounds the wait for replies after the last arrival. Requests without a reply by
	// then count with the time that they have waited.
	Wait time.Duration

	Closed   int           // above 0: requests in flight, ignoring the trace's times
	Repeat   bool          // closed: restart at the end
	Duration time.Duration // closed: how long; open: requests due later are left out; 0 for all

	// Progress, if set, gets a line that is overwritten every second.
	Progress io.Writer
	// Log, if set, is called for each request at its end.
	Log func(at, latency time.Duration, read bool, size int64)
}
