package faults

import (
	"errors"
	"iter"
	"slices"
	"syscall"
	"time"

	"hotbed/dataplane/tests/simdisk"
	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/filestore"
	"hotbed/dataplane/twochoice/protocol"
	"hotbed/dataplane/twochoice/radosstore"
)

// node is a simulated node: its disk, and the agent on it while it is up.
type node struct {
	w     *world
	id    protocol.Node
	disk  *simdisk.Disk
	store *filestore.Disk
	agent *protocol.Agent
	epoch uint64
	up    bool
	cut   bool          // no message reaches or leaves the node
	slow  float64       // factor of the disk's times; 0 means 1
	skew  time.Duration // error of its clock
	under []*task       // on the disk, in starting order
}

// start starts the agent from the disk's contents. It must succeed after any crash.
func (n *node) start() {
	w := n.w
	n.epoch++
	n.under = nil
	unwell := n.disk.Full || n.disk.Sick
	var store *filestore.Disk
	var found filestore.Found
	var err error
	opening := newTask(n.disk, protocol.DiskOp{}, func() { store, found, err = n.open() })
	calls := -1 // calls until the process dies
	if !w.calm && n.disk.Random.IntN(8) == 0 {
		calls = int(n.disk.Random.IntN(24))
	}
	for ; opening.goOn(); calls-- {
		if calls == 0 {
			n.under = append(n.under, opening)
			n.up = true
			n.crash(n.disk.Random.IntN(2) == 0)
			w.after(10*time.Millisecond, n.restart)
			return
		}
	}
	if err == nil {
		var agent *protocol.Agent
		if agent, err = protocol.NewAgent(n.config(), found.Fragments, found.Records); err == nil {
			n.store, n.agent = store, agent
		}
	}
	if err != nil {
		if unwell { // retry
			w.after(10*time.Millisecond, n.restart)
			return
		}
		w.model.violated("agent %d does not start: %v", n.id, err)
		return
	}
	if found.Recovery.TornBytes > 0 {
		w.result.Torn++
	}
	w.result.Repaired += found.Recovery.Repaired
	w.log("node %d starts: %d fragments, %d records, %d bytes torn", n.id, len(found.Fragments), len(found.Records),
		found.Recovery.TornBytes)
	n.up = true
	w.model.ordered(found.Records)
	n.flush()
	n.tick(n.epoch)
}

// open opens the agent's store.
func (n *node) open() (*filestore.Disk, filestore.Found, error) {
	if n.w.backend == pools {
		return radosstore.OpenDisk(simdisk.Pool{Disk: n.disk}, n.id, 1)
	}
	return filestore.OpenDisk(n.disk, n.id)
}

// now returns the node's clock, which may be set back and forth.
func (n *node) now() time.Duration { return max(0, n.w.k.Now()+n.skew) }

func (n *node) restart() {
	if !n.up {
		n.start()
	}
}

func (n *node) config() protocol.AgentConfig {
	detector := twochoice.NewDetector(n.w.parameters(), twochoice.Server(n.id), twochoice.Ticket(n.epoch<<32))
	p := n.w.plan
	return protocol.AgentConfig{Node: n.id, Nodes: p.nodes, Home: n.w.home, Epoch: n.epoch, Size: 1 << 20,
		Copies: p.copies, IdleOps: p.idleOps, Maintainer: twochoice.MaintainerParameters{Workers: 3, Bytes: 24},
		CompactAbove: p.compactAbove, Patience: 20 * time.Millisecond, Orphans: p.orphans, Detector: detector}
}

// tick advances the agent's time.
func (n *node) tick(epoch uint64) {
	n.w.after(tick, func() {
		if n.up && n.epoch == epoch {
			n.agent.Tick(n.now())
			n.flush()
			n.tick(epoch)
		}
	})
}

// crash kills the agent during its disk operations, or with power the whole node.
func (n *node) crash(power bool) {
	if !n.up {
		return
	}
	n.up = false
	n.w.result.Crashes++
	n.w.log("node %d crashes (power %v) with %d disk operations under way", n.id, power, len(n.under))
	r := n.disk.Random
	for range r.IntN(int64(4*len(n.under) + 1)) { // tasks continue for a while, in any order
		n.under[r.IntN(int64(len(n.under)))].goOn()
	}
	n.abandon()
	if power {
		n.disk.LosePower()
	}
}

// abandon stops disk tasks where they are.
func (n *node) abandon() {
	for _, t := range n.under {
		t.die()
	}
	n.under = nil
}

// flush carries out the agent's requests.
func (n *node) flush() {
	sends, ops := n.agent.Take()
	if err := n.agent.Failed(); err != nil {
		if !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.ESHUTDOWN) && !errors.Is(err, syscall.ENOSPC) {
			n.w.model.violated("node %d: nothing is wrong with its disk: %v", n.id, err)
		}
		// Pages with a failed sync may be lost although they look written, so the node must crash.
		n.w.log("%v", err)
		n.w.result.Sicks++
		n.crash(true)
		n.w.after(n.w.between(time.Millisecond, 100*time.Millisecond), n.restart)
		return
	}
	for _, op := range ops {
		n.begin(op)
	}
	for _, s := range sends {
		n.w.send(protocol.Peer(n.id), s)
	}
}

// begin carries out a disk operation after its service time.
func (n *node) begin(op protocol.DiskOp) {
	w := n.w
	mean := 300 * time.Microsecond
	if op.Kind == protocol.CompactLog {
		w.result.Compactions++
		if !w.calm && w.plan.fulls > 0 && n.disk.Random.IntN(3) == 0 {
			w.fill(n)
		}
	}
	took := time.Duration(n.disk.Random.Exp() * float64(mean) * max(n.slow, 1))
	if !w.calm && n.disk.Random.IntN(16) == 0 {
		took *= 32 // a few operations hang while later ones pass
	}
	store := n.store
	var done protocol.DiskDone
	end := func() {
		n.agent.DiskDone(n.now(), done)
		if op.Kind == protocol.WriteLog && done.Err == nil {
			w.model.ordered(op.Records)
		}
		n.flush()
	}
	early := w.breaks == ackBeforeSync && op.Kind == protocol.WriteLog ||
		w.breaks == ackBeforeFragment && op.Kind == protocol.PutFragment
	forgets := w.breaks == forgetRecords && op.Kind == protocol.WriteLog && n.disk.Random.IntN(8) == 0
	if epoch := n.epoch; early || forgets {
		done.Op = op.Op
		w.after(0, func() {
			if n.up && n.epoch == epoch {
				end()
			}
		})
	}
	if forgets {
		return
	}
	t := newTask(n.disk, op, func() {
		if w.breaks == uncheckedBase && op.Kind == protocol.ReadBase {
			n.trust(op)
		}
		if done = store.Do(op); w.breaks == baseUnwritten && op.Kind == protocol.WriteBase && done.Err != nil {
			done = protocol.DiskDone{Op: op.Op, Sums: protocol.SumsOf(op.From, op.Data)}
		}
	})
	n.under = append(n.under, t)
	n.goOn(t, took, func() {
		if done.Err != nil {
			w.log("node %d: disk operation %d: %v", n.id, op.Kind, done.Err)
		}
		n.count(op)
		if !early {
			end()
		}
	})
}

// goOn makes some of a task's calls after a part of its total time, until the task is done. It then
// calls `then`, unless the process died before.
func (n *node) goOn(t *task, took time.Duration, then func()) {
	epoch := n.epoch
	n.w.after(took/3, func() {
		if !n.up || n.epoch != epoch {
			return
		}
		for range 1 + n.disk.Random.IntN(4) {
			if !t.goOn() {
				n.under = slices.DeleteFunc(n.under, func(o *task) bool { return o == t })
				then()
				return
			}
		}
		n.goOn(t, took, then)
	})
}

func (n *node) count(op protocol.DiskOp) {
	for _, r := range op.Records {
		switch {
		case op.Kind != protocol.WriteLog:
		case r.Change.Kind == twochoice.Returned:
			n.w.result.Returned++
		case r.Note.Kind == protocol.OfFence:
			n.w.result.Fenced++
		case r.Change.Kind == twochoice.Redirected && int(r.Change.Location.Server) != n.w.plan.nodes:
			n.w.result.Redirected++
		}
	}
}

// send puts a message on the network.
func (w *world) send(from protocol.Peer, s protocol.Send) {
	w.result.Messages++
	packet := append(s.Append(nil), s.Data...)
	copies := 1
	if !w.calm {
		switch {
		case w.isCut(from) || w.isCut(s.To) || w.network.Bernoulli(w.plan.lost):
			w.result.Lost++
			copies = 0
		case w.network.Bernoulli(w.plan.doubled):
			w.result.Doubled++
			copies = 2
		}
	}
	w.log("%v to %v: %v call %d %q %v %d to %d stamp %d code %d %s", from, s.To, s.Kind, s.Call, s.Object, s.Write, s.From,
		s.Message.To, s.Stamp, s.Code, []string{"lost", "", "doubled"}[copies])
	for range copies {
		delay := w.network.Exp() * float64(w.plan.delay)
		if !w.calm && w.network.Bernoulli(w.plan.straggling) {
			delay *= 100
			if w.network.IntN(8) == 0 {
				delay *= 30 // longer than several lives of agents and clients
			}
		}
		w.after(time.Duration(delay), func() { w.deliver(from, s.To, packet) })
	}
}

func (w *world) isCut(p protocol.Peer) bool { return p < protocol.FirstClient && w.nodes[p].cut }

func (w *world) deliver(from, to protocol.Peer, packet []byte) {
	m, err := protocol.Decode(slices.Clone(packet))
	if err != nil {
		w.model.violated("a message cannot be read: %v", err)
		return
	}
	if to < protocol.FirstClient {
		if n := w.nodes[to]; n.up {
			n.agent.Receive(n.now(), from, m)
			n.flush()
		}
	} else if c := w.clients[to]; c != nil {
		c.machine.Receive(w.k.Now(), from, m)
		c.flush()
	}
}

// task is a disk task that runs one call at a time: anything else may happen between two calls.
type task struct {
	disk *simdisk.Disk
	op   protocol.DiskOp // of an agent; none while the agent starts
	next func() (struct{}, bool)
	stop func()
	wait func(struct{}) bool
	dead bool
}

// newTask returns a disk task that has not begun.
func newTask(d *simdisk.Disk, op protocol.DiskOp, do func()) *task {
	t := &task{disk: d, op: op}
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.wait = yield
		do()
	})
	return t
}

// goOn makes the next call, and reports whether more follow.
func (t *task) goOn() bool {
	t.disk.Step = t.step
	defer func() { t.disk.Step = nil }()
	_, more := t.next()
	return more
}

// die stops the task at its next call.
func (t *task) die() {
	t.disk.Step = t.step
	defer func() { t.disk.Step = nil }()
	t.stop()
}

func (t *task) step() error {
	if t.dead || !t.wait(struct{}{}) {
		t.dead = true
		return simdisk.ErrCrash
	}
	return nil
}
