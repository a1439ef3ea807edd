package replay

import (
	"time"

	"hotbed/dataplane/internal/nfs3"
	"hotbed/dataplane/internal/sunrpc"
)

// align is the alignment of offsets that the trace does not give.
const align = 4096

// mostPending is how many bytes may wait for a connection; further requests wait as requests.
const mostPending = 1 << 20

func (e *engine) scaled(at time.Duration) time.Duration {
	if e.Speed == 1 || e.Speed == 0 {
		return at
	}
	return time.Duration(float64(at) / e.Speed)
}

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
		due := e.start + e.scaled(next.At)
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
	if r.Offset == unknownOffset {
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
