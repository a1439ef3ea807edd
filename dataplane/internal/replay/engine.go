package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"time"

	"hotbed/dataplane/internal/nfs3"
	"hotbed/dataplane/internal/reactor"
	"hotbed/dataplane/internal/sunrpc"
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
	Drain time.Duration // how long after the last arrival replies are waited for

	Closed   int           // above 0: that many in flight, times of the trace do not count
	Repeat   bool          // closed: begin again at the end
	Duration time.Duration // closed: how long; open: requests due later are left out; 0 for all

	// Progress, when set, gets a line that is written over every second.
	Progress io.Writer
	// Log, when set, is called for each request at its end.
	Log func(at, latency time.Duration, read bool, size int64)
}

// align is what offsets that the trace does not tell are multiples of.
const align = 4096

// window is how many bytes may wait for a connection; further requests wait as requests.
const window = 1 << 20

// request is one that was issued.
type request struct {
	Request
	due    time.Duration
	left   int  // pieces without a reply
	second bool // it counts for the second half
}

// piece is a READ or WRITE that waits for its reply.
type piece struct {
	of    *request
	count uint32
}

type connection struct {
	engine *engine
	conn   *reactor.Conn
	reader sunrpc.Reader
	ready  bool
	// backlog are requests that wait for the connection.
	backlog []*request
}

type engine struct {
	Options
	loop        *reactor.Loop
	trace       []Request
	next        int // of the trace, to be issued
	turn        int // of the connections
	conns       []*connection
	pieces      map[uint32]piece
	xid         uint32
	random      *rand.Rand
	data        []byte
	start       time.Duration // on the loop's clock
	end         time.Duration // no arrivals from here on
	half        time.Duration
	last        time.Duration // end of the last request
	active      time.Duration // when something was issued or answered last
	outstanding int
	backlog     int
	began       bool
	err         error

	whole, second tally
	lag           times
	result        Result
}

// Run replays a trace. On an error the result is what there was until then.
func Run(ctx context.Context, o Options, trace []Request) (Result, error) {
	loop, err := reactor.New()
	if err != nil {
		return Result{}, err
	}
	defer loop.End()
	e := &engine{Options: o, loop: loop, trace: trace, pieces: map[uint32]piece{},
		xid: rand.Uint32(), random: rand.New(rand.NewPCG(o.Seed, 1)), whole: newTally(),
		second: newTally(), lag: newTimes()}
	e.result.Errors = map[string]int64{}
	e.data = make([]byte, o.Transfer+3)
	for i := range e.data {
		e.data[i] = byte(e.random.Uint32())
	}
	for range max(o.Connections, 1) {
		c := &connection{engine: e, reader: sunrpc.Reader{Most: o.Transfer + 4096}}
		if c.conn, err = reactor.Dial(loop, o.Server, o.Local, c); err != nil {
			return e.result, fmt.Errorf("cannot connect to %s: %w", o.Server, err)
		}
		e.conns = append(e.conns, c)
	}
	loop.Alarm = e.alarm
	loop.After = e.settle
	loop.Tick = e.tick
	stop := context.AfterFunc(ctx, func() {
		loop.Do(func() { e.fail(errors.New("interrupted")) })
	})
	defer stop()
	if err := loop.Run(); err != nil {
		return e.result, err
	}
	for _, c := range e.conns {
		c.conn.Close()
	}
	return e.tell(), e.err
}

// begin sets the clock once all connections are there.
func (e *engine) begin() {
	for _, c := range e.conns {
		if !c.ready {
			return
		}
	}
	e.began = true
	e.start = e.loop.Now()
	if !e.Start.IsZero() {
		e.start = max(e.start, e.loop.Now()+time.Until(e.Start))
	}
	e.result.Started = float64(time.Now().Add(e.start-e.loop.Now()).UnixNano()) / 1e9
	length := e.scaled(e.trace[len(e.trace)-1].At)
	e.end = e.start + length + 1
	if e.Duration > 0 {
		e.end = e.start + e.Duration
		length = e.Duration
	} else if e.Closed > 0 {
		e.end = reactor.Forever
	}
	e.half = e.start + length/2
	e.last = e.start
	if e.Closed == 0 || e.start > e.loop.Now() {
		e.loop.WakeAt(e.start)
		return
	}
	e.alarm()
}

func (e *engine) scaled(at time.Duration) time.Duration {
	if e.Speed == 1 || e.Speed == 0 {
		return at
	}
	return time.Duration(float64(at) / e.Speed)
}

// alarm issues what is due.
func (e *engine) alarm() {
	if e.Closed > 0 {
		for e.outstanding < e.Closed && e.issueNext(e.loop.Now()) {
		}
		return
	}
	for e.next < len(e.trace) {
		due := e.start + e.scaled(e.trace[e.next].At)
		if due >= e.end {
			e.next = len(e.trace)
			break
		}
		now := e.loop.Now()
		if due > now {
			e.loop.WakeAt(due)
			return
		}
		e.lag.add(now - due)
		e.issueNext(due)
	}
}

// issueNext issues the next request of the trace and says whether there was one.
func (e *engine) issueNext(due time.Duration) bool {
	if e.next == len(e.trace) && e.Repeat {
		e.next = 0
	}
	if e.next == len(e.trace) || due >= e.end {
		e.next = len(e.trace)
		e.Repeat = false
		return false
	}
	r := &request{Request: e.trace[e.next], due: due, second: due >= e.half}
	e.next++
	if e.Closed > 0 && e.Duration == 0 {
		r.second = 2*e.next > len(e.trace)
	}
	e.active = e.loop.Now()
	r.place(e)
	e.outstanding++
	e.result.MaxOutstanding = max(e.result.MaxOutstanding, e.outstanding)
	c := e.conns[e.turn]
	e.turn = (e.turn + 1) % len(e.conns)
	if len(c.backlog) > 0 || c.conn.Pending() >= window {
		c.backlog = append(c.backlog, r)
		e.backlog++
		e.result.MaxBacklog = max(e.result.MaxBacklog, e.backlog)
		return true
	}
	c.send(r)
	return true
}

// place fits a request into the file.
func (r *request) place(e *engine) {
	r.Size = min(max(r.Size, 1), e.FileSize)
	room := e.FileSize - r.Size
	if r.Offset == unknownOffset {
		r.Offset = e.random.Int64N(room/align+1) * align
	} else if r.Offset > room {
		r.Offset = r.Offset % (room + 1) &^ (align - 1)
	}
}

// send hands all pieces of a request to the connection.
func (c *connection) send(r *request) {
	e := c.engine
	var header [256]byte
	for done := int64(0); done < r.Size; {
		count := min(r.Size-done, int64(e.Transfer))
		e.xid++
		procedure := uint32(nfs3.ProcRead)
		if !r.Read {
			procedure = nfs3.ProcWrite
		}
		out := sunrpc.AppendCall(header[:0], e.xid, nfs3.Program, nfs3.Version, procedure)
		out.Opaque(e.Handle)
		out.Uint64(uint64(r.Offset + done))
		out.Uint32(uint32(count))
		data := e.data[:0]
		if !r.Read {
			out.Uint32(e.Stable)
			out.Uint32(uint32(count))
			data = e.data[:(count+3)&^3]
		}
		sunrpc.SealRecord(out.Bytes, 0, len(data))
		c.conn.Queue(out.Bytes)
		if len(data) > 0 {
			c.conn.Queue(data)
		}
		r.left++
		e.pieces[e.xid] = piece{r, uint32(count)}
		done += count
	}
}

// Ready is called when replies have come, or more can be sent.
func (c *connection) Ready(events uint32) {
	e := c.engine
	if !c.ready {
		if err := c.conn.Connected(); err != nil {
			e.fail(fmt.Errorf("cannot connect to %s: %w", e.Server, err))
			return
		}
		c.ready = true
		c.conn.Flush() // no longer waits to be writable
		c.conn.Wait(true)
		e.begin()
		return
	}
	if events&reactor.Writable != 0 {
		c.conn.Flush()
	}
	if events&(reactor.Readable|reactor.Broken) == 0 {
		return
	}
	n, err := c.conn.Read(c.reader.Space())
	if err != nil {
		e.fail(fmt.Errorf("the connection to %s was lost: %w", e.Server, err))
		return
	}
	c.reader.Filled(n)
	for {
		_, record, err := c.reader.Next()
		if err != nil {
			e.fail(err)
			return
		}
		if record == nil {
			return
		}
		e.reply(record)
	}
}

func (e *engine) complete(r *request) {
	now := e.loop.Now()
	latency := now - r.due
	e.last, e.active = now, now
	e.outstanding--
	e.whole.add(r.Read, latency, e.SLO)
	if r.second {
		e.second.add(r.Read, latency, e.SLO)
	}
	if e.Log != nil {
		e.Log(r.due-e.start, latency, r.Read, r.Size)
	}
	if e.Closed > 0 {
		e.issueNext(now)
	}
}

// settle sends what was queued in this round and ends when all is done.
func (e *engine) settle() {
	for _, c := range e.conns {
		if !c.ready {
			continue
		}
		c.conn.Flush()
		for len(c.backlog) > 0 && c.conn.Pending() < window {
			r := c.backlog[0]
			c.backlog = c.backlog[1:]
			e.backlog--
			c.send(r)
			c.conn.Flush()
		}
		if err := c.conn.Failed(); err != nil {
			e.fail(fmt.Errorf("the connection to %s was lost: %w", e.Server, err))
		}
	}
	if e.began && e.next == len(e.trace) && !e.Repeat && e.outstanding == 0 {
		e.loop.Stop()
	}
}

// tick shows how far it is, and gives up on replies that do not come.
func (e *engine) tick() {
	now := e.loop.Now()
	if !e.began {
		return
	}
	if e.outstanding > 0 && now > e.active+e.Drain {
		e.fail(fmt.Errorf("%d requests have no reply, and nothing has happened for %v", e.outstanding, e.Drain))
	}
	if e.Progress == nil {
		return
	}
	if e.end < reactor.Forever {
		past, all := max(now-e.start, 0), e.end-e.start
		_, _ = fmt.Fprintf(e.Progress, "\rreplay: %.0f s of %.0f s, %.0f s left ", min(past, all).Seconds(),
			all.Seconds(), max(all-past, 0).Seconds())
		return
	}
	_, _ = fmt.Fprintf(e.Progress, "\rreplay: %d of %d requests ", e.next, len(e.trace))
}

func (e *engine) fail(err error) {
	if e.err == nil {
		e.err = err
		e.loop.Stop()
	}
}

func (e *engine) tell() Result {
	r := e.result
	r.Schema, r.Mode = 1, "open"
	if e.Closed > 0 {
		r.Mode = "closed"
	}
	r.Whole, r.SecondHalf = e.whole.tell(e.SLO), e.second.tell(e.SLO)
	r.SendLag = e.lag.tell(false)
	r.Spoiled = r.SendLag.P99 > worstLag
	r.Elapsed = (e.last - e.start).Seconds()
	if e.outstanding > 0 {
		r.Errors["not answered"] = int64(e.outstanding)
	}
	return r
}
