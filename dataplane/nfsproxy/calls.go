package nfsproxy

import (
	"math/bits"
	"time"

	"hotbed/dataplane/enforcer"
	"hotbed/dataplane/internal/nfs3"
	"hotbed/dataplane/internal/sunrpc"
)

// callOverhead is a call's memory in addition to its bytes.
const callOverhead = 256

// call is a call in progress through the proxy.
type call struct {
	request enforcer.Request
	session *session
	// workload is the session's workload at the call's arrival.
	workload *workload
	xid      uint32
	kind     nfs3.Kind
	size     int
	// bytes is the marked record: in the session's reader at first, a copy if the call must wait.
	bytes   []byte
	own     bool
	reserve int // of the client's memory
	// queued is true if the enforcer handles the call; calls of other programs bypass it.
	queued bool
	sentAt time.Duration
	twin   *call // an earlier call of the same session with the same xid

	before, after *call // in a list
}

// calls is a list of calls in insertion order.
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

// pool keeps calls and buffers for reuse, so that a steady load allocates nothing.
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

// class returns the buffer class for a number of bytes, and the class's size: four classes per
// power of two.
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

// keep copies a call's bytes to its own buffer.
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

// disown removes a call's bytes.
func (p *pool) disown(c *call) {
	if class, size := class(cap(c.bytes)); c.own && p.bytes+size <= pooledBytes {
		p.buffers[class] = append(p.buffers[class], c.bytes[:size])
		p.bytes += size
	}
	c.bytes, c.own = nil, false
}

// describe fills in a call's operation and cost. It must be called once per admitted call, in
// order, because the estimator is stateful.
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

// files maps every file of a workload to a range of one line of offsets. So the estimator (and a
// recorded trace) sees the way between files as long. The first file starts at 0.
type files map[string]int64

const (
	fileBits = 40 // a range of 1 TiB
	maxFiles = 1 << 16
)

func (f files) place(handle []byte, offset uint64) int64 {
	index, known := f[string(handle)]
	if !known {
		// All further files share a range, which bounds memory.
		index = int64(min(len(f), maxFiles))
		if index < maxFiles {
			f[string(handle)] = index
		}
	}
	return index<<fileBits + int64(offset&(1<<fileBits-1))
}
