// Package replay sends the requests of a trace to an NFS server, at the trace's times or one after
// another, and reports their latencies (section 5.1 of PriorityMeister).
package replay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/internal/nfs3"
	"hotbed/dataplane/internal/reactor"
	"hotbed/dataplane/internal/sunrpc"
	"hotbed/dataplane/internal/traces"
)

// request is an issued request.
type request struct {
	traces.Request
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
	// backlog holds requests that wait for the connection.
	backlog []*request
}

type engine struct {
	Options
	loop        *reactor.Loop
	trace       traces.Trace
	feed        *traces.Feed
	issued      int64
	ended       bool // no more requests are issued
	turn        int  // of the connections
	conns       []*connection
	pieces      map[uint32]piece
	xid         uint32
	random      *rand.Rand
	data        []byte
	start       time.Duration // on the loop's clock
	end         time.Duration // arrivals end here
	deadline    time.Duration // waiting for replies ends here
	half        time.Duration
	last        time.Duration // end of the last request
	active      time.Duration // time of the last issue or reply
	outstanding int
	backlog     int
	began       bool
	over        bool // unanswered requests have been counted: later replies are ignored
	err         error

	whole, second tally
	line          timeline
	lag           times
	result        Result
}

// Run replays a trace. On an error, the result covers the time until the error.
func Run(ctx context.Context, o Options, trace traces.Trace) (Result, error) {
	loop, err := reactor.New()
	if err != nil {
		return Result{}, err
	}
	defer loop.End()
	e := &engine{Options: o, loop: loop, trace: trace, feed: trace.Feed(o.Repeat),
		pieces: map[uint32]piece{}, xid: rand.Uint32(), random: rand.New(rand.NewPCG(o.Seed, 1)),
		whole: newTally(), second: newTally(), line: newTimeline(), lag: newTimes(),
		deadline: reactor.Forever}
	defer e.feed.Close()
	e.feed.Peek() // the first requests are read before the clock starts
	e.result.Errors = map[string]int64{}
	e.data = make([]byte, o.Transfer+3)
	for i := range e.data {
		e.data[i] = byte(e.random.Uint32())
	}
	for range max(o.Connections, 1) {
		c := &connection{engine: e, reader: sunrpc.Reader{Most: o.Transfer + 4096}}
		if c.conn, err = reactor.Dial(loop, o.Server, c); err != nil {
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
	return e.report(), e.err
}

// begin sets the clock once all connections are established.
func (e *engine) begin() {
	for _, c := range e.conns {
		if !c.ready {
			return
		}
	}
	e.start = e.loop.Now()
	if !e.Start.IsZero() {
		early := time.Until(e.Start)
		if early < 0 {
			e.fail(fmt.Errorf("the time to start at was %v ago when the connections were there: give a later one",
				-early.Round(time.Millisecond)))
			return
		}
		e.start += early
	}
	e.began = true
	e.result.Started = float64(time.Now().Add(e.start-e.loop.Now()).UnixNano()) / 1e9
	length := e.trace.Length
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

// Ready is called when replies have arrived or more can be sent.
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
	e.count(r, latency, true)
	if e.Log != nil {
		e.Log(r.due-e.start, latency, r.Read, r.Size)
	}
	if e.Closed > 0 {
		e.issueNext(now)
	}
}

// count adds a request to the result; latency is the waiting time if it has no reply.
func (e *engine) count(r *request, latency time.Duration, answered bool) {
	missed := e.SLO > 0 && (latency > e.SLO || !answered)
	e.whole.add(r, latency, missed, answered)
	if e.Closed > 0 && e.Duration > 0 {
		now := e.loop.Now()
		r.second = now >= e.half && now < e.end && answered
	}
	if r.second {
		e.second.add(r, latency, missed, answered)
	}
	e.line.add(r.due-e.start, latency, missed)
}

// settle sends what was queued in this round and stops the loop when all is done.
func (e *engine) settle() {
	if e.over {
		return
	}
	for _, c := range e.conns {
		if !c.ready {
			continue
		}
		c.conn.Flush()
		for len(c.backlog) > 0 && c.conn.Pending() < mostPending {
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
	if e.ended && e.outstanding == 0 {
		e.loop.Stop()
	}
}

// abandon counts unanswered requests with their waiting times and stops the loop.
func (e *engine) abandon() {
	waiting := map[*request]bool{}
	for _, p := range e.pieces {
		waiting[p.of] = true
	}
	for _, c := range e.conns {
		for _, r := range c.backlog {
			waiting[r] = true
		}
	}
	now := e.loop.Now()
	for r := range waiting {
		e.count(r, now-r.due, false)
	}
	e.outstanding, e.over = 0, true
	e.loop.Stop()
}

// tick shows progress and gives up on replies that do not arrive.
func (e *engine) tick() {
	now := e.loop.Now()
	if !e.began {
		return
	}
	if e.outstanding > 0 && e.Wait == 0 && now > e.active+e.Drain {
		e.fail(fmt.Errorf("%d requests have no reply, and nothing has happened for %v", e.outstanding, e.Drain))
	}
	if e.end < reactor.Forever {
		past, all := min(max(now-e.start, 0), e.end-e.start).Seconds(), (e.end - e.start).Seconds()
		e.Progress.Show(past/all, "replay: %.0f s of %.0f s", past, all)
		return
	}
	e.Progress.Show(0, "replay: %d of %d requests", e.issued, e.trace.Requests)
}

func (e *engine) fail(err error) {
	if e.err == nil {
		e.err = err
		e.loop.Stop()
	}
}

func (e *engine) report() Result {
	r := e.result
	r.Schema, r.Mode = 1, "open"
	if e.Closed > 0 {
		r.Mode = "closed"
	}
	r.Whole, r.SecondHalf = e.whole.report(e.SLO), e.second.report(e.SLO)
	r.Timeline = e.line.report()
	r.Trace = e.trace.Report
	r.SendLag = e.lag.report(false)
	r.Spoiled = r.SendLag.P99 > worstLag
	r.Elapsed = (e.last - e.start).Seconds()
	if e.outstanding > 0 {
		r.Errors["not answered"] = int64(e.outstanding)
	}
	return r
}

// align is the alignment of offsets that the trace does not give.
const align = 4096

// mostPending is how many bytes may wait for a connection; further requests wait as requests.
const mostPending = 1 << 20

// alarm issues due requests and ends the waiting for replies.
func (e *engine) alarm() {
	switch {
	case e.ended:
		if e.loop.Now() >= e.deadline {
			e.abandon()
		}
	case e.Closed > 0:
		for e.outstanding < e.Closed && e.issueNext(e.loop.Now()) {
		}
	default:
		e.issueDue()
	}
}

// issueDue issues the due requests of an open loop.
func (e *engine) issueDue() {
	for {
		next, more := e.feed.Peek()
		due := e.start + next.At
		if !more || due >= e.end {
			e.finish()
			return
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

// finish ends the issuing of requests.
func (e *engine) finish() {
	if e.ended {
		return
	}
	e.ended = true
	if err := e.feed.Err(); err != nil {
		e.fail(err)
	}
	if e.Wait > 0 {
		e.deadline = min(e.end, e.loop.Now()) + e.Wait
		e.loop.WakeAt(e.deadline)
	}
}

// issueNext issues the next request of the trace and returns true if there was one.
func (e *engine) issueNext(due time.Duration) bool {
	next, more := e.feed.Peek()
	if !more || due >= e.end {
		e.finish()
		return false
	}
	e.feed.Skip()
	e.issued++
	r := &request{Request: next, due: due, second: due >= e.half}
	if e.Closed > 0 && e.Duration == 0 {
		r.second = 2*e.issued > e.trace.Requests
	}
	e.active = e.loop.Now()
	r.place(e)
	e.outstanding++
	e.result.MaxOutstanding = max(e.result.MaxOutstanding, e.outstanding)
	c := e.conns[e.turn]
	e.turn = (e.turn + 1) % len(e.conns)
	if len(c.backlog) > 0 || c.conn.Pending() >= mostPending {
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
	if r.Offset == traces.UnknownOffset {
		r.Offset = e.random.Int64N(room/align+1) * align
	} else if r.Offset > room {
		r.Offset = r.Offset % (room + 1) &^ (align - 1)
	}
}

// send passes all pieces of a request to the connection.
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
			out.Uint32(nfs3.FileSync)
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

// Options describe how to replay a trace.
type Options struct {
	Server      netip.AddrPort
	Connections int
	Handle      []byte // of the file
	FileSize    int64
	Transfer    int    // most bytes of one READ or WRITE; larger requests are several in parallel
	Seed        uint64 // of offsets that the trace does not give

	Start time.Time     // when the first request is due; zero for at once
	SLO   time.Duration // counts misses; 0 for none
	Drain time.Duration // how long to wait for replies after the last reply or arrival
	// Wait, if set, bounds the wait for replies after the last arrival. Requests without a reply by
	// then count with the time that they have waited.
	Wait time.Duration

	Closed   int           // above 0: requests in flight, ignoring the trace's times
	Repeat   bool          // closed: restart at the end
	Duration time.Duration // closed: how long; open: requests due later are left out; 0 for all

	Progress *command.Progress
	// Log, if set, is called for each request at its end.
	Log func(at, latency time.Duration, read bool, size int64)
}
