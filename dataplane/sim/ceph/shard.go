package ceph

import "hotbed/dataplane/sim"

// shard is a queue of operations with its threads; each PG always uses the same shard. While client
// operations wait, recovery gets a thread with the probability of Ceph's weighted priority queue.
type shard struct {
	clients, recovery fifo
	busy              int
}

// fifo holds operations in arrival order.
type fifo struct {
	queue []ref
	head  int
}

func (f *fifo) push(r ref) { f.queue = append(f.queue, r) }

func (f *fifo) len() int { return len(f.queue) - f.head }

func (f *fifo) pop() ref {
	r := f.queue[f.head]
	f.head++
	if f.head == len(f.queue) {
		f.queue, f.head = f.queue[:0], 0
	}
	return r
}

// recoveryShare is osd_recovery_priority over its sum with osd_client_op_priority.
const recoveryShare = 5. / (5 + 63)

// pgLock serializes the operations of a PG at an OSD; waiting operations keep their threads.
type pgLock struct {
	holder  ref
	waiting []ref
}

func (c *Cluster) enqueue(o *osd, r ref, pg int32) {
	s := &o.shards[int(pg)%len(o.shards)]
	if c.at(r).recovers() {
		s.recovery.push(r)
	} else {
		s.clients.push(r)
	}
	c.dispatch(o, s)
}

// dispatch assigns waiting operations to free threads.
func (c *Cluster) dispatch(o *osd, s *shard) {
	for s.busy < c.cfg.Threads && s.clients.len()+s.recovery.len() > 0 {
		from := &s.clients
		if s.recovery.len() > 0 && (from.len() == 0 || c.queueRandom.Bernoulli(recoveryShare)) {
			from = &s.recovery
		}
		r := from.pop()
		if p := c.at(r); p != nil && c.fresh(r, p) {
			s.busy++
			c.lock(o, r, p)
		}
	}
}

// fresh reports whether a queued operation may still run: its PG may have moved since.
func (c *Cluster) fresh(r ref, p *op) bool {
	state := &c.pgs[p.pg]
	switch {
	case p.interval == state.interval || p.recovers():
		return true
	case p.kind == opReplica:
		c.freeOp(r)
		return false
	}
	return c.admit(r, p, state)
}

func (c *Cluster) lock(o *osd, r ref, p *op) {
	l := o.locks[p.pg]
	if l == nil {
		l = &pgLock{}
		o.locks[p.pg] = l
	}
	if l.holder != 0 {
		l.waiting = append(l.waiting, r)
		return
	}
	l.holder = r
	c.begin(r, p)
}

// begin runs an operation that holds its PG's lock.
func (c *Cluster) begin(r ref, p *op) {
	p.locked = true
	took := c.cfg.OpTime + float64(float64(p.bytes)*c.cfg.ByteTime)
	c.k.After(sim.Seconds(took), (*onCPU)(c), uint64(r))
}

// release passes an operation's lock and thread on to the next operations.
func (c *Cluster) release(p *op) {
	o, pg := c.osds[p.osd], p.pg
	p.locked = false
	l := o.locks[pg]
	l.holder = 0
	for len(l.waiting) > 0 && l.holder == 0 {
		next := l.waiting[0]
		l.waiting = l.waiting[:copy(l.waiting, l.waiting[1:])]
		q := c.at(next)
		switch {
		case q.kind == opPeer:
			c.peerReady(next, q)
		case !c.fresh(next, q):
			o.shards[int(pg)%len(o.shards)].busy--
		default:
			l.holder = next
			c.begin(next, q)
		}
	}
	s := &o.shards[int(pg)%len(o.shards)]
	s.busy--
	c.dispatch(o, s)
}
