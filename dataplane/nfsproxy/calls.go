package nfsproxy

import (
	"math/bits"
	"time"

	"hotbed/dataplane/enforcer"
	"hotbed/dataplane/internal/nfs3"
	"hotbed/dataplane/internal/sunrpc"
)

// callOverhead is what a call takes beside its bytes.
const callOverhead = 256

// call is a call on its way through the proxy.
type call struct {
	request enforcer.Request
	session *session
	// workload is the session's when the call came.
	workload *workload
	xid      uint32
	kind     nfs3.Kind
	size     int
	// bytes is the marked record: the session's reader's until the call has to wait, then its own.
	bytes   []byte
	own     bool
	reserve int // of the client's memory
	// queued says that the enforcer knows it; calls of other programs pass by.
	queued bool
	sentAt time.Duration
	twin   *call // an earlier call of the same session with the same xid

	before, after *call // in a list
}

// calls is a list of calls in the order in which they were put in.
type calls struct{ first, last *call }

func (l *calls) push(c *call) {
	c.before, c.after = l.last, nil
	if l.last == nil {
		l.first = c
	} else {
		l.last.after = c
	}
	l.last = c
}

func (l *calls) remove(c *call) {
	if c.before == nil {
		l.first = c.after
	} else {
		c.before.after = c.after
	}
	if c.after == nil {
		l.last = c.before
	} else {
		c.after.before = c.before
	}
	c.before, c.after = nil, nil
}

// pool keeps calls and buffers for use again, so that a steady load allocates nothing.
type pool struct {
	calls   []*call
	buffers [4 * 31][][]byte // by class
	bytes   int              // of the buffers
}

const (
	pooledCalls = 4096
	pooledBytes = 16 << 20
	smallBuffer = 512
)

// class returns the class of buffers for so many bytes, and their size: four classes from each power of
// two to the next.
func class(bytes int) (class, size int) {
	bytes = max(bytes, smallBuffer)
	power := bits.Len(uint(bytes - 1))
	quarter := (bytes - 1 - 1<<(power-1)) >> (power - 3)
	return 4*power + quarter, 1<<(power-1) + (quarter+1)<<(power-3)
}

func (p *pool) call() *call {
	if n := len(p.calls); n > 0 {
		c := p.calls[n-1]
		p.calls = p.calls[:n-1]
		return c
	}
	c := &call{}
	c.request.Data = c
	return c
}

func (p *pool) free(c *call) {
	p.disown(c)
	if len(p.calls) < pooledCalls {
		*c = call{request: c.request}
		p.calls = append(p.calls, c)
	}
}

// keep gives a call bytes of its own.
func (p *pool) keep(c *call) {
	if c.own {
		return
	}
	class, size := class(len(c.bytes))
	var buffer []byte
	if free := p.buffers[class]; len(free) > 0 {
		buffer = free[len(free)-1]
		p.buffers[class] = free[:len(free)-1]
		p.bytes -= size
	} else {
		buffer = make([]byte, size)
	}
	c.bytes, c.own = buffer[:copy(buffer, c.bytes)], true
}

// disown takes a call's bytes away.
func (p *pool) disown(c *call) {
	if class, size := class(cap(c.bytes)); c.own && p.bytes+size <= pooledBytes {
		p.buffers[class] = append(p.buffers[class], c.bytes[:size])
		p.bytes += size
	}
	c.bytes, c.own = nil, false
}

// describe fills in what a call asks for and costs. It must be asked once for each call that is let
// in, in order: the estimator remembers.
func (p *Proxy) describe(c *call, header sunrpc.Call) {
	op := nfs3.Describe(header)
	c.xid, c.kind = header.XID, op.Kind
	c.queued = header.Program == nfs3.Program
	count := min(int64(op.Count), int64(p.config.maxRecord))
	c.size = int(count)
	c.reserve = len(c.bytes) + callOverhead + min(op.Reply, p.config.maxRecord)
	if !c.queued {
		return
	}
	s := c.session
	c.workload = p.workloads[s.workload]
	c.request.Workload = s.workload
	c.request.Cost = time.Duration(*p.parameters.OtherCost).Seconds()
	if op.Kind == nfs3.Other {
		return
	}
	w := c.workload
	offset := w.files.place(op.Handle, op.Offset)
	read := op.Kind == nfs3.Read
	c.request.Cost = w.estimator.Work(read, offset, count)
	if w.recorder != nil {
		w.recorder.row(p.now-p.recording, read, count, offset)
		if len(w.recorder.rows) >= recorderBytes {
			p.counts.traceRowsLost += w.recorder.flush(p.traces)
		}
	}
}

// files gives every file of a workload a stretch of one line of offsets, so that the estimator (and
// a recorded trace) sees the way from one file to another as a long one. The first file seen starts
// at 0.
type files map[string]int64

const (
	fileBits = 40 // a stretch of 1 TiB
	maxFiles = 1 << 16
)

func (f files) place(handle []byte, offset uint64) int64 {
	index, known := f[string(handle)]
	if !known {
		// Beyond so many files they share a stretch: memory is bounded.
		index = int64(min(len(f), maxFiles))
		if index < maxFiles {
			f[string(handle)] = index
		}
	}
	return index<<fileBits + int64(offset&(1<<fileBits-1))
}
