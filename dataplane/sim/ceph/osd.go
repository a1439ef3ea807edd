package ceph

import (
	"math"
	"slices"
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

	stored     int64 // bytes of objects
	reported   int64 // of these, bytes known to the manager at the last change
	reportedIn int64 // statistics interval of that change
	filled     int64 // of these, bytes from before any benchmark
	writeAt    int64
	primaries  int
	down       bool // the daemon does not run
	cut        bool // its node's link is cut
	life       uint32
	outBy      uint32 // its reweight before it was marked out for being down

	stalled sim.Occupancy // the daemon's tasks that wait for I/O
	fio     load

	reads, writes         int64
	replicas              int64 // writes for another OSD's PG
	readBytes, writeBytes int64
	readTime              time.Duration // sum of op_r_latency
	readService           time.Duration // sum of op_r_process_latency
	writeTime             time.Duration // sum of op_w_latency
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
		shards: c.newShards(),
		locks:  map[int32]*pgLock{},
	}
	o.fio.random = sim.StreamOf(c.cfg.Seed, "ceph/fio", uint64(i))
	return o
}

// onArrive: a client's or another OSD's operation has reached its OSD.
type onArrive Cluster

func (h *onArrive) Handle(_ *sim.Kernel, arg uint64) {
	c, r := (*Cluster)(h), ref(arg)
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
	if !c.bench.current(p) || state.active && !c.serves(p) {
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

// serves reports whether an operation's OSD may serve it: the primary, and of a read that was sent
// to a replica any member.
func (c *Cluster) serves(p *op) bool {
	if p.kind == opRead && c.bench.policy != policyPrimary {
		return slices.Contains(c.members(p.pg), p.osd)
	}
	return c.primary(p.pg) == p.osd
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
		o.readService += c.k.Now() - p.began
		c.release(p)
		o.out.Send(c.k, p.bytes, (*onReply)(c), uint64(r))
	case opPull:
		c.pulled(r, p)
	default:
		c.commit(o, r)
	}
}

// onReply: a read's data leaves the OSD's node.
type onReply Cluster

func (h *onReply) Handle(_ *sim.Kernel, arg uint64) {
	c, r := (*Cluster)(h), ref(arg)
	p := c.at(r)
	if p == nil {
		return
	}
	n := &c.clients[c.node(p.slot)]
	end := n.in.end(c.k.Now(), p.bytes, c.cfg.NodeRate, c.cfg.ClientRate)
	n.cpuFree = max(n.cpuFree, end) + sim.Seconds(float64(p.bytes)*c.cfg.ClientByte)
	c.k.At(n.cpuFree+sim.Seconds(c.cfg.ClientOp), (*onComplete)(c), uint64(r))
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
		p.left--
		c.peered(r, p)
	}
}

// shard is a queue of operations with its threads; each PG always uses the same shard. While client
// operations wait, recovery gets a thread with the probability of Ceph's weighted priority queue.
// With mClock, operations wait in its queue instead.
type shard struct {
	clients, recovery fifo[ref]
	mclock            *dmclock // nil: the weighted priority queue
	busy              int
}

func (c *Cluster) newShards() []shard {
	shards := make([]shard, c.cfg.Shards)
	if c.mclock() {
		for i := range shards {
			shards[i].mclock = newDmclock(&c.cfg, c.monitor.options[optionProfile])
		}
	}
	return shards
}

func (s *shard) len() int {
	if s.mclock != nil {
		return s.mclock.len()
	}
	return s.clients.len() + s.recovery.len()
}

// fifo holds items in arrival order.
type fifo[T any] struct {
	queue []T
	head  int
}

func (f *fifo[T]) push(item T) { f.queue = append(f.queue, item) }

func (f *fifo[T]) len() int { return len(f.queue) - f.head }

func (f *fifo[T]) first() *T { return &f.queue[f.head] }

func (f *fifo[T]) pop() T {
	item := f.queue[f.head]
	f.head++
	if f.head == len(f.queue) {
		f.queue, f.head = f.queue[:0], 0
	}
	return item
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
	p := c.at(r)
	switch {
	case s.mclock != nil:
		s.mclock.enqueue(c, r, p)
	case p.recovers():
		s.recovery.push(r)
	default:
		s.clients.push(r)
	}
	c.dispatch(o, s)
}

// dispatch assigns waiting operations to free threads.
func (c *Cluster) dispatch(o *osd, s *shard) {
	for s.busy < c.cfg.Threads && s.len() > 0 {
		r := c.pop(o, s)
		if r == 0 {
			return
		}
		if p := c.at(r); p != nil && c.fresh(r, p) {
			s.busy++
			c.lock(o, r, p)
		}
	}
}

// pop takes the operation that a shard serves next, 0 if mClock's limits forbid all.
func (c *Cluster) pop(o *osd, s *shard) ref {
	if s.mclock != nil {
		r, wake := s.mclock.next(c.k.Now().Seconds())
		if r == 0 {
			c.wakeAt(o, s, time.Duration(math.Ceil(wake*1e9)))
		}
		return r
	}
	from := &s.clients
	if s.recovery.len() > 0 && (from.len() == 0 || c.queueRandom.Bernoulli(recoveryShare)) {
		from = &s.recovery
	}
	return from.pop()
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
	p.locked, p.began = true, c.k.Now()
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
			c.peerReady(next)
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

// A write goes to the primary. The primary forwards it to the other members, writes it itself, and
// answers when all have committed.

// replicate forwards a write to the other members.
func (c *Cluster) replicate(r ref) {
	p := *c.at(r)
	o := c.osds[p.osd]
	waits := int32(1)
	for _, member := range c.members(p.pg) {
		if member == p.osd {
			continue
		}
		child, q := c.newOp(opReplica, p.pg, member)
		q.parent, q.bytes, q.slot, q.try = r, p.bytes, p.slot, p.try
		q.offset = c.overwrite(c.osds[member], p.bytes)
		waits++
		o.out.Send(c.k, p.bytes, (*onForward)(c), uint64(child))
	}
	c.at(r).waits = waits
}

// overwrite returns the offset of a client's write. A small open-loop write overwrites existing
// data in place; a large write, like a new object, goes to new space.
func (c *Cluster) overwrite(o *osd, bytes int64) int64 {
	if c.bench.open == nil || bytes >= c.cfg.DeferBytes {
		return c.allocate(o, bytes)
	}
	return c.place(o, c.bench.open.where.IntN(max(1, c.objects.count)), bytes)
}

// allocate returns the offset of an OSD's new data: after its last write, or at the start again at
// the end of the disk.
func (c *Cluster) allocate(o *osd, bytes int64) int64 {
	start := c.dataStart()
	if start+o.writeAt+2*bytes > c.cfg.DiskSize {
		o.writeAt = 0
	}
	at := start + o.writeAt
	o.writeAt += bytes
	return c.clamp(at&^4095, bytes)
}

// onForward: data for another OSD has left the sender's node.
type onForward Cluster

func (h *onForward) Handle(_ *sim.Kernel, arg uint64) {
	c, r := (*Cluster)(h), ref(arg)
	p := c.at(r)
	if p == nil {
		return
	}
	if p.kind == opPull {
		c.pushed(r)
		return
	}
	source := core
	if parent := c.at(p.parent); parent != nil {
		source = c.rackOf(parent.osd)
	}
	c.receive(r, p.bytes, c.cfg.NodeRate, source)
}

// receive delivers data that has just left its sender, in the rack `source`, to an op's OSD.
func (c *Cluster) receive(r ref, bytes int64, from float64, source int32) {
	p := c.at(r)
	o := c.osds[p.osd]
	if o.cut {
		o.held = append(o.held, heldMessage{r, bytes, from})
		return
	}
	o.netIn += bytes
	now, from := c.cross(c.k.Now(), bytes, from, source, c.rackOf(p.osd))
	c.k.At(o.in.end(now, bytes, from, c.cfg.NodeRate), (*onArrive)(c), uint64(r))
}

// onWritten: a client's data has left its node.
type onWritten Cluster

func (h *onWritten) Handle(_ *sim.Kernel, arg uint64) {
	c, r := (*Cluster)(h), ref(arg)
	if p := c.at(r); p != nil {
		c.receive(r, p.bytes, c.cfg.ClientRate, core)
	}
}

// onAck: a member's commit reaches the waiting primary.
type onAck Cluster

func (h *onAck) Handle(_ *sim.Kernel, arg uint64) {
	c, r := (*Cluster)(h), ref(arg)
	p := c.at(r)
	if p == nil {
		return
	}
	kind, parent, move := p.kind, p.parent, p.slot
	c.freeOp(r)
	if kind == opPush {
		c.recovered(move)
	} else if c.at(parent) != nil {
		c.acknowledge(parent)
	}
}

// acknowledge counts a commit of a write and answers the client after the last commit.
func (c *Cluster) acknowledge(r ref) {
	p := c.at(r)
	p.waits--
	if p.waits > 0 {
		return
	}
	o := c.osds[p.osd]
	o.writes++
	o.writeBytes += p.bytes
	o.writeTime += c.k.Now() - p.came
	if c.bench.current(p) {
		c.pgs[p.pg].writes++
		if c.bench.open == nil { // otherwise it overwrites
			c.store(p.pg, p.bytes, 1)
		}
		if len(c.members(p.pg)) < c.cfg.Size {
			c.pgs[p.pg].degraded++
		}
	}
	c.k.After(sim.Seconds(c.cfg.Delay+c.cfg.ClientOp), (*onComplete)(c), uint64(r))
}

// core is the rack number of everything outside racks: clients.
const core int32 = -1

// uplink connects a rack with the rest of the network, with a link for each direction.
type uplink struct{ out, in ingress }

// rackOf returns the rack of an OSD's node, `core` in a flat network.
func (c *Cluster) rackOf(osd int32) int32 {
	if len(c.cfg.Racks) == 0 {
		return core
	}
	return int32(c.cfg.Racks[osd])
}

// cross returns the time at which a message that has just left its sender has passed the uplinks
// between two racks, and the rate at which it leaves them.
func (c *Cluster) cross(now time.Duration, bytes int64, from float64, source, target int32) (
	time.Duration, float64,
) {
	if source == target || c.cfg.Uplink == 0 {
		return now, from
	}
	if source != core {
		now, from = c.uplinks[source].out.end(now, bytes, from, c.cfg.Uplink), c.cfg.Uplink
	}
	if target != core {
		now, from = c.uplinks[target].in.end(now, bytes, from, c.cfg.Uplink), c.cfg.Uplink
	}
	return now, from
}
