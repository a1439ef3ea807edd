package faults

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"hotbed/dataplane/sim"
	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/protocol"
)

// client is a simulated client process.
type client struct {
	w       *world
	peer    protocol.Peer
	machine *protocol.Client
	writes  map[uint64]*write // in progress, by operation
	reads   map[uint64]*read
	todo    int // operations not yet begun
	// thinking counts the operations about to begin.
	thinking int
}

// read is a read in progress.
type read struct {
	object          string
	from, to, floor uint64
}

// join starts a client that will do this many operations.
func (w *world) join(operations int) *client {
	w.ids++
	scheduler, err := twochoice.New(w.parameters(), twochoice.Servers(w.plan.nodes), sim.NewStream(w.work.Uint64(), "scheduler"), nil)
	if err != nil {
		panic(err)
	}
	machine := protocol.NewClient(protocol.ClientConfig{ID: w.ids, Nodes: w.plan.nodes, Home: w.home,
		Copies: w.plan.copies, Batch: w.plan.batch, Attempts: 12, Scheduler: scheduler})
	c := &client{w: w, peer: protocol.FirstClient + protocol.Peer(w.ids), machine: machine,
		writes: map[uint64]*write{}, reads: map[uint64]*read{}, todo: operations}
	w.clients[c.peer] = c
	w.left += operations
	for range min(int64(operations), w.plan.parallel) {
		c.work()
	}
	return c
}

// work begins the next operation after a think time.
func (c *client) work() {
	if c.todo == 0 {
		return
	}
	c.todo--
	c.thinking++
	c.w.after(time.Duration(c.w.work.Exp()*float64(c.w.plan.think)), func() {
		if c.w.clients[c.peer] != c {
			return
		}
		c.w.left--
		c.thinking--
		r := c.w.work
		object := chance(r, c.w.names()...)
		from := r.IntN(c.w.plan.size)
		n := 1 + r.IntN(min(c.w.plan.size-from, 40))
		if r.Bernoulli(c.w.plan.reads) {
			c.read(object, uint64(from), uint64(n))
		} else {
			c.write(object, uint64(from), int(n))
		}
	})
}

func (c *client) write(object string, from uint64, n int) {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(1 + c.w.work.IntN(255))
	}
	op, err := c.machine.Write(c.w.k.Now(), object, from, data)
	if err != nil {
		panic(err)
	}
	c.w.active++
	c.writes[op] = c.w.model.begin(object, from, data)
	c.w.log("client %v operation %d writes %q from %d: %x", c.peer, op, object, from, data)
	c.flush()
	c.mayGiveUp(op)
}

func (c *client) read(object string, from, n uint64) {
	op, err := c.machine.Read(object, from, n)
	if err != nil {
		panic(err)
	}
	c.w.active++
	c.reads[op] = &read{object, from, from + n, c.w.model.object(object).latest}
	c.w.log("client %v operation %d reads %q from %d to %d", c.peer, op, object, from, from+n)
	c.flush()
	c.mayGiveUp(op)
}

var errGivenUp = errors.New("its caller gave it up")

// mayGiveUp lets an operation's caller lose patience while faults occur.
func (c *client) mayGiveUp(op uint64) {
	if p := c.w.plan; !c.w.calm && p.impatient > 0 && c.w.work.Bernoulli(p.impatient) {
		c.w.after(time.Duration(c.w.work.Exp()*float64(p.patience)/4), func() {
			if c.w.clients[c.peer] == c {
				c.machine.Cancel(op, errGivenUp)
				c.flush()
			}
		})
	}
}

// flush carries out the requests of the client's machine.
func (c *client) flush() {
	sends, finished := c.machine.Take()
	for _, op := range sorted(c.writes) {
		if id, ok := c.machine.Name(op); ok {
			c.w.model.named(c.writes[op], id)
		}
	}
	for _, s := range sends {
		c.w.send(c.peer, s)
		if call := s.Call; call != 0 && s.Kind != protocol.Decide {
			c.w.after(c.w.plan.patience+time.Duration(c.w.network.Exp()*float64(c.w.plan.patience)/4), func() {
				if c.w.clients[c.peer] == c && c.machine.Waiting(call) {
					c.machine.Timeout(c.w.k.Now(), call)
					c.flush()
				}
			})
		}
	}
	for _, f := range finished {
		c.ended(f)
	}
}

func sorted(m map[uint64]*write) []uint64 {
	out := make([]uint64, 0, len(m))
	for op := range m {
		out = append(out, op)
	}
	slices.Sort(out)
	return out
}

// ended compares the end of an operation with the model.
func (c *client) ended(f protocol.Finished) {
	c.w.active--
	if errors.Is(f.Err, errGivenUp) {
		c.w.result.GivenUp++
	}
	c.w.log("client %v operation %d ends: stamp %d %v error %v decided %v data %x", c.peer, f.Op, f.Stamp, f.Write, f.Err,
		f.Decided, f.Data)
	if write := c.writes[f.Op]; write != nil {
		delete(c.writes, f.Op)
		c.w.model.ended(write, f)
		switch {
		case f.Err == nil:
		case c.w.settled:
			c.w.model.violated("a write failed though everything is well: %v", f.Err)
		case !mayFail(f.Err):
			c.w.model.violated("a write failed otherwise than for want of an answer or of room: %v", f.Err)
		}
	} else {
		r := c.reads[f.Op]
		delete(c.reads, f.Op)
		c.readEnded(r, f)
	}
	c.work()
}

func (c *client) readEnded(r *read, f protocol.Finished) {
	var refused *protocol.Error
	switch {
	case f.Err == nil:
		c.w.model.read(r.object, r.from, r.to, r.floor, f)
	case errors.As(f.Err, &refused) && refused.Code == protocol.Refused:
		c.w.model.beyond(r.object, r.to, r.floor, f.Stamp)
	case errors.As(f.Err, &refused) && refused.Code == protocol.Failed && c.w.plan.copies == 1 && c.w.damaged[r.object]:
		if c.w.result.Named++; !strings.Contains(f.Err.Error(), strconv.Quote(r.object)) {
			c.w.model.violated("an error does not name its object: %v", f.Err)
		}
	case errors.As(f.Err, &refused) && (refused.Code == protocol.Failed || refused.Code == protocol.Gone):
		c.w.model.violated("a read found damage that nobody did: %v", f.Err)
	case c.w.settled:
		c.w.model.violated("a read failed though everything is well: %v", f.Err)
	case !unanswered(f.Err):
		c.w.model.violated("a read failed otherwise than for want of an answer: %v", f.Err)
	}
}

// unanswered reports whether an operation was given up because no answer came in time.
func unanswered(err error) bool {
	return errors.Is(err, errGivenUp) || strings.Contains(err.Error(), "did not answer")
}

// mayFail reports whether a write may fail while faults occur: no answer, or no space.
func mayFail(err error) bool {
	var refused *protocol.Error
	if errors.As(err, &refused) {
		return refused.Code == protocol.Full
	}
	return unanswered(err) || strings.Contains(err.Error(), "no agent took")
}

// crash ends a client in the middle of its operations; another process replaces it.
func (c *client) crash() {
	w := c.w
	w.result.ClientCrashes++
	w.log("client %v crashes", c.peer)
	delete(w.clients, c.peer)
	w.active -= len(c.writes) + len(c.reads)
	rest := c.todo + c.thinking
	c.todo = 0
	w.left -= rest
	c.machine.Take()
	w.join(rest)
}

// anyClient returns a random running client.
func (w *world) anyClient() *client {
	var peers []protocol.Peer
	for p := range w.clients {
		peers = append(peers, p)
	}
	if len(peers) == 0 {
		return nil
	}
	slices.Sort(peers)
	return w.clients[chance(w.faults, peers...)]
}
