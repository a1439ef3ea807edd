package ceph

import (
	"time"

	"hotbed/dataplane/sim"
)

// partGap is the distance of a large I/O's overtaken part from the head. The head must settle
// again; the distance itself does not matter.
const partGap = 4096

// osd is one object storage daemon with its node: a disk, a link, and fio's load.
type osd struct {
	id   int32
	disk *sim.Disk
	out  *sim.Link
	in   ingress
	held []heldMessage // messages to a disconnected node

	shards []shard
	locks  map[int32]*pgLock

	kvWaiting, kvBatch []ref
	kvBusy             bool
	kvLeft             int // writes until the batch is committed
	logAt              int64

	stored    int64 // bytes of objects
	told      int64 // of these, bytes known to the manager at the last change
	toldIn    int64 // statistics interval of that change
	filled    int64 // of these, bytes from before any benchmark
	writeAt   int64
	primaries int
	down      bool // the daemon does not run
	cut       bool // its node's link is cut
	life      uint32
	outBy     uint32 // its reweight before it was marked out for being down

	stalled sim.Occupancy // the daemon's tasks that wait for I/O
	fio     load

	reads, writes         int64
	replicas              int64 // writes for another OSD's PG
	readBytes, writeBytes int64
	readTime              time.Duration // sum of op_r_latency
	netIn                 int64
	backfills             int // reservations held
}

// heldMessage is a message that waits for a cut link to heal.
type heldMessage struct {
	r     ref
	bytes int64
	from  float64
}

func newOSD(c *Cluster, i int) *osd {
	o := &osd{
		id:     int32(i),
		disk:   sim.NewDisk(c.k, c.cfg.disk()),
		out:    sim.NewLink(sim.LinkSpec{Rate: c.cfg.NodeRate, Delay: sim.Seconds(c.cfg.Delay)}),
		shards: make([]shard, c.cfg.Shards),
		locks:  map[int32]*pgLock{},
	}
	o.fio.random = sim.StreamOf(c.cfg.Seed, "ceph/fio", uint64(i))
	return o
}

// arrive receives a client's or another OSD's operation from the network.
func (c *Cluster) arrive(r ref) {
	p := c.at(r)
	if p == nil {
		return
	}
	o := c.osds[p.osd]
	if o.down {
		c.freeOp(r) // lost: the client resends it after a map change
		return
	}
	p.came = c.k.Now()
	state := &c.pgs[p.pg]
	switch p.kind {
	case opPush:
	case opReplica:
		if p.interval != state.interval {
			c.freeOp(r)
			return
		}
	default:
		if !c.admit(r, p, state) {
			return
		}
	}
	c.enqueue(o, r, p.pg)
}

// admit reports whether a client's operation may continue. During a peering the operation waits; an
// outdated operation is dropped.
func (c *Cluster) admit(r ref, p *op, state *pgState) bool {
	if !c.bench.current(p) || c.primary(p.pg) != p.osd && state.active {
		c.freeOp(r)
		return false
	}
	if !state.active {
		state.waiting = append(state.waiting, r)
		return false
	}
	p.interval = state.interval
	return true
}

// onCPU: an operation's computation ends, and its disk I/O begins.
type onCPU Cluster

func (h *onCPU) Handle(_ *sim.Kernel, arg uint64) {
	c, r := (*Cluster)(h), ref(arg)
	p := c.at(r)
	if p == nil {
		return
	}
	if p.kind == opWrite {
		c.replicate(r)
	}
	c.submit(r)
}

// submit passes the parts of an operation's I/O to the disk until one must wait for a tag.
func (c *Cluster) submit(r ref) {
	p := c.at(r)
	o := c.osds[p.osd]
	write := p.kind != opRead && p.kind != opPull
	for p.submitted < p.bytes {
		n := min(c.cfg.MaxIO, p.bytes-p.submitted)
		if p.submitted > 0 && c.partRandom.Bernoulli(c.cfg.Reorder) {
			p.gap += partGap
		}
		at := p.offset + p.submitted + p.gap
		p.submitted += n
		p.left++
		part := sim.IO{
			Write: write, Offset: at, Bytes: n, Task: &o.stalled, Admitted: (*onAdmitted)(c),
		}
		if !o.disk.Submit(c.k, part, (*onPart)(c), uint64(r)) {
			return
		}
	}
	if write && p.locked {
		c.release(p) // the rest of a write needs no thread
	}
}

// onAdmitted: a waiting part has its tag, and the thread continues with the next part.
type onAdmitted Cluster

func (h *onAdmitted) Handle(_ *sim.Kernel, arg uint64) {
	c := (*Cluster)(h)
	if c.at(ref(arg)) != nil {
		c.submit(ref(arg))
	}
}

// onPart: the disk finishes a part.
type onPart Cluster

func (h *onPart) Handle(_ *sim.Kernel, arg uint64) {
	c, r := (*Cluster)(h), ref(arg)
	p := c.at(r)
	if p == nil {
		return
	}
	p.left--
	if p.left > 0 || p.submitted < p.bytes {
		return
	}
	o := c.osds[p.osd]
	switch p.kind {
	case opRead:
		o.reads++
		c.pgs[p.pg].reads++
		o.readBytes += p.bytes
		o.readTime += c.k.Now() - p.came
		c.release(p)
		o.out.Send(c.k, p.bytes, (*onReply)(c), arg)
	case opPull:
		c.pulled(r, p)
	default:
		c.commit(o, r)
	}
}

// onReply: a read's data leaves the OSD's node.
type onReply Cluster

func (h *onReply) Handle(k *sim.Kernel, arg uint64) {
	c, r := (*Cluster)(h), ref(arg)
	p := c.at(r)
	if p == nil {
		return
	}
	n := &c.clients[c.node(p.slot)]
	end := n.in.end(k.Now(), p.bytes, c.cfg.NodeRate, c.cfg.ClientRate)
	n.cpuFree = max(n.cpuFree, end) + sim.Seconds(float64(p.bytes)*c.cfg.ClientByte)
	k.At(n.cpuFree+sim.Seconds(c.cfg.ClientOp), (*onComplete)(c), arg)
}

// onComplete: the client receives its answer.
type onComplete Cluster

func (h *onComplete) Handle(_ *sim.Kernel, arg uint64) {
	c, r := (*Cluster)(h), ref(arg)
	p := c.at(r)
	if p == nil {
		return
	}
	current, slot := c.bench.current(p), p.slot
	c.freeOp(r)
	if current {
		c.bench.complete(c, slot)
	}
}

// commit queues a transaction for an OSD's key-value store, which writes all waiting ones together.
func (c *Cluster) commit(o *osd, r ref) {
	o.kvWaiting = append(o.kvWaiting, r)
	if !o.kvBusy {
		c.commitNext(o)
	}
}

func (c *Cluster) commitNext(o *osd) {
	o.kvBatch, o.kvWaiting = o.kvWaiting, o.kvBatch[:0]
	o.kvBusy = true
	o.kvLeft = c.cfg.CommitWrites
	c.log(o)
}

// log writes to the log of an OSD's key-value store; a commit takes several consecutive writes.
func (c *Cluster) log(o *osd) {
	o.kvLeft--
	bytes := min(int64(len(o.kvBatch))*c.cfg.CommitBytes, c.cfg.MaxIO)
	room := c.dataStart() - min(c.cfg.Scratch, c.dataStart()-1<<19)
	if o.logAt+bytes > room {
		o.logAt = 0
	}
	at := c.dataStart() - room + o.logAt
	o.logAt += bytes
	part := sim.IO{Write: true, Offset: at, Bytes: bytes, Task: &o.stalled}
	o.disk.Submit(c.k, part, (*onLogged)(c), uint64(o.life)<<32|uint64(o.id))
}

// onLogged: a batch of transactions is on disk.
type onLogged Cluster

func (h *onLogged) Handle(_ *sim.Kernel, arg uint64) {
	c := (*Cluster)(h)
	o := c.osds[uint32(arg)]
	if o.life != uint32(arg>>32) {
		return
	}
	if o.kvLeft > 0 {
		c.log(o)
		return
	}
	for _, r := range o.kvBatch { // later commits that follow from these wait for the next batch
		if p := c.at(r); p != nil {
			c.committed(r, p)
		}
	}
	o.kvBusy = false
	if len(o.kvWaiting) > 0 {
		c.commitNext(o)
	}
}

// committed continues the work that waited for a transaction.
func (c *Cluster) committed(r ref, p *op) {
	switch p.kind {
	case opWrite:
		p.committed = true
		if !c.bench.current(p) {
			c.freeOp(r) // the client has resent it
			return
		}
		c.acknowledge(r)
	case opReplica, opPush:
		if p.kind == opReplica {
			c.osds[p.osd].replicas++
		}
		c.k.After(sim.Seconds(c.cfg.Delay), (*onAck)(c), uint64(r))
	case opPeer:
		c.peerCommitted(r, p)
	}
}
