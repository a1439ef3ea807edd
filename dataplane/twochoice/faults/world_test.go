// Package faults runs the two-choice protocol (dataplane/twochoice/protocol), with the object
// server's store and log, on the event kernel's virtual time, and injects faults. Messages are
// lost, doubled, delayed and reordered. Agents, nodes and clients crash at any point. Disks fill
// up, slow down, fail a sync, and lose unsynced data in part and in any order. What clients see is
// compared byte for byte with a model of docs/twochoice.md.
//
// A seed decides everything: the same seed fails the same way.
package faults

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"hotbed/dataplane/sim"
	"hotbed/dataplane/tests/simdisk"
	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/protocol"
)

// Bounds of a run, in virtual time.
const (
	longest = 3 * time.Second  // with faults
	quiet   = 2 * time.Second  // afterwards, for operations in progress to end
	hang    = 30 * time.Second // for disk operations that hung when faults ended
	tick    = 4 * time.Millisecond
)

// backend is the kind of storage below the agents.
type backend string

const (
	files backend = "file"  // a folder (filestore)
	pools backend = "rados" // a RADOS pool (radosstore)
)

type world struct {
	plan    plan
	backend backend
	k       *sim.Kernel
	network *sim.Stream
	faults  *sim.Stream
	work    *sim.Stream
	home    func(string) protocol.Node
	breaks  breakage
	trace   func(now time.Duration, line string)

	nodes   []*node
	clients map[protocol.Peer]*client
	ids     uint64 // of clients
	model   *model
	damaged map[string]bool          // objects with possible losses where only one copy exists
	spoilt  map[string]protocol.Node // damaged fragments, by file name, and their nodes
	calm    bool                     // no more faults
	settled bool                     // calm, and all operations from before have ended
	left    int                      // operations that clients have yet to begin
	active  int                      // operations in progress
	result  result
}

// breakage is a driver that breaks the protocol's rules on purpose. The model must find each one,
// because a comparison that finds nothing proves nothing.
type breakage string

const (
	sound             breakage = ""
	ackBeforeSync     breakage = "ack-before-sync"     // log writes end before they are done
	ackBeforeFragment breakage = "ack-before-fragment" // puts end before they are done
	forgetRecords     breakage = "forget-records"      // one log write in eight is not done
	baseUnwritten     breakage = "base-unwritten"      // base writes that find no space count as done
	oneLogCopy        breakage = "one-log-copy"        // the second copy of the log is not written
	uncheckedBase     breakage = "unchecked-base"      // what is read from a base is not verified
)

var breakages = []breakage{ackBeforeSync, ackBeforeFragment, forgetRecords, baseUnwritten, oneLogCopy, uncheckedBase}

// run runs a seed on a backend, maybe with a breakage; trace may be nil.
func run(on backend, seed uint64, breaks breakage, trace func(now time.Duration, line string)) result {
	w := &world{plan: makePlan(seed), backend: on, k: sim.New(), network: sim.NewStream(seed, "network"),
		faults: sim.NewStream(seed, "faults"), work: sim.NewStream(seed, "work"), breaks: breaks, trace: trace,
		clients: map[protocol.Peer]*client{}, model: newModel(), damaged: map[string]bool{},
		spoilt: map[string]protocol.Node{}}
	w.home = func(object string) protocol.Node { return protocol.HomeOf(object, w.plan.nodes) }
	w.log("plan %+v", w.plan)
	for i := range w.plan.nodes {
		n := &node{w: w, id: protocol.Node(i), disk: simdisk.New(sim.NewStream(seed, fmt.Sprintf("disk-%d", i)))}
		n.disk.OneCopy = breaks == oneLogCopy
		w.nodes = append(w.nodes, n)
		n.start()
	}
	for range w.plan.clients {
		w.join(w.plan.operations)
	}
	w.scheduleFaults()
	w.run()
	for _, n := range w.nodes {
		n.abandon()
	}
	w.result.Reads, w.result.Acked, w.result.err = w.model.reads, w.model.acked, w.model.found
	w.result.Virtual, w.result.Events = w.k.Now(), w.k.Events()
	return w.result
}

func (w *world) log(format string, args ...any) {
	if w.trace != nil {
		w.trace(w.k.Now(), fmt.Sprintf(format, args...))
	}
}

// after schedules a function.
func (w *world) after(d time.Duration, do func()) {
	w.k.Post(w.k.Now()+d, sim.Func(func(*sim.Kernel, uint64) { do() }), 0)
}

// until runs until a condition holds, the time ends or the model is violated.
func (w *world) until(end time.Duration, holds func() bool) {
	for w.model.found == nil && !holds() && w.k.Now() < end {
		w.k.RunUntil(min(end, w.k.Now()+tick))
	}
}

// run lets the clients work with faults, repairs everything, and reads all objects. After writing
// to all objects, it reads them again when everything is at home and no orphans remain.
func (w *world) run() {
	idle := func() bool { return w.left == 0 && w.active == 0 }
	w.until(longest, idle)
	w.repair()
	begun := w.underWay()
	w.until(w.k.Now()+quiet, idle)
	if !idle() && w.model.found == nil {
		w.model.violated("after everything was repaired %d operations did not end", w.active)
	}
	// An operation on a slow or hanging disk may take longer than clients wait.
	w.until(w.k.Now()+hang, func() bool { return !w.anyUnderWay(begun) })
	if w.anyUnderWay(begun) && w.model.found == nil {
		w.model.violated("a disk operation from before the repair did not end")
	}
	w.settled = true
	w.readAll()
	w.writeAll()
	w.until(w.k.Now()+10*time.Second, func() bool { return w.tidy() })
	if n := w.useless(); !w.tidy() && w.model.found == nil {
		w.model.violated("%d fragments and entries are left that nobody needs", n)
	}
	for _, n := range w.nodes { // durable data survives one more crash
		n.crash(true)
		n.start()
	}
	w.readAll()
}

// underWay returns the disk operations in progress on all nodes.
func (w *world) underWay() map[*task]bool {
	found := map[*task]bool{}
	for _, n := range w.nodes {
		for _, t := range n.under {
			found[t] = true
		}
	}
	return found
}

func (w *world) anyUnderWay(begun map[*task]bool) bool {
	for _, n := range w.nodes {
		if slices.ContainsFunc(n.under, func(t *task) bool { return begun[t] }) {
			return true
		}
	}
	return false
}

// useless counts fragments on all nodes that no entry needs. With one copy entries count too,
// because everything finally returns home. With two copies each entry has two fragments.
func (w *world) useless() int {
	fragments, entries := 0, 0
	for _, n := range w.nodes {
		s := n.agent.Stats()
		fragments, entries = fragments+s.Fragments, entries+s.Entries
	}
	if w.plan.copies == 1 {
		return fragments + entries
	}
	return fragments - 2*entries
}

// tidy reports whether no unneeded fragment is left. Fragments lost by a disk are missing. Damaged
// data, or data next to a damaged part of a base, cannot be brought home. Nobody knows whether a
// fragment without a header is needed.
func (w *world) tidy() bool {
	n := w.useless()
	if n <= 0 && n >= -w.result.Missing || len(w.damaged) == 0 {
		return n <= 0 && n >= -w.result.Missing
	}
	spoilt, fragments, entries := 0, 0, 0
	for _, node := range w.nodes {
		entries += node.agent.Stats().Entries
		names, _ := node.disk.List()
		for _, name := range names {
			var id protocol.WriteID
			if _, err := fmt.Sscanf(name, "f.%x.%x", &id.Client, &id.Seq); err != nil {
				continue
			}
			if on, there := w.spoilt[name]; there && on == node.id {
				spoilt++
			}
			if write := w.model.byName[id]; write != nil && w.damaged[write.object.name] {
				fragments++
			} else if w.plan.copies == 1 {
				return false
			}
		}
	}
	if w.plan.copies == 1 {
		return entries <= fragments
	}
	return n >= -w.result.Missing && n <= spoilt+w.result.Missing // a store may still count a lost fragment
}

// writeAll writes to every object with a new client, to show that faults stop no agent for good.
func (w *world) writeAll() {
	c := w.join(0)
	for _, name := range w.names() {
		for range 2 {
			c.write(name, uint64(w.work.IntN(w.plan.size)), 1+int(w.work.IntN(20)))
		}
	}
	w.until(w.k.Now()+quiet, func() bool { return w.active == 0 })
	if w.active > 0 && w.model.found == nil {
		w.model.violated("an object cannot be written to though everything is well")
	}
}

// readAll reads every object completely with a new client.
func (w *world) readAll() {
	c := w.join(0)
	for _, name := range w.names() {
		o := w.model.object(name)
		if size := o.size(^uint64(0)); size > 0 {
			strip := size
			if w.damaged[name] && w.plan.copies == 1 { // to compare the undamaged parts
				strip = simdisk.Sector
			}
			for from := uint64(0); from < size; from += strip {
				c.read(name, from, min(strip, size-from))
			}
		} else {
			c.read(name, 0, 1)
		}
	}
	w.until(w.k.Now()+quiet, func() bool { return w.active == 0 })
	if w.active > 0 && w.model.found == nil {
		w.model.violated("an object cannot be read though everything is well")
	}
}

func (w *world) names() []string {
	out := make([]string, w.plan.objects)
	for i := range out {
		out[i] = fmt.Sprintf("object/%d", i)
	}
	return out
}

// parameters returns the schedulers' and detectors' parameters.
func (w *world) parameters() twochoice.Parameters {
	p := twochoice.Defaults(w.plan.policy)
	p.Choices, p.MinWrite = w.plan.choices, 4
	p.Preassign.Unit = 16
	return p
}

// every schedules `do` repeatedly at a mean rate per second until the calm.
func (w *world) every(rate float64, do func()) {
	if rate == 0 {
		return
	}
	w.after(time.Duration(w.faults.Exp()*1e9/rate), func() {
		if !w.calm {
			do()
			w.every(rate, do)
		}
	})
}

func (w *world) anyNode() *node { return w.nodes[w.faults.IntN(int64(len(w.nodes)))] }

// between returns a log-uniform time: short and long times are equally likely.
func (w *world) between(least, most time.Duration) time.Duration {
	d := least
	for d < most && w.faults.IntN(3) > 0 {
		d *= 2
	}
	return min(d, most)
}

// fill fills a node's disk for a while.
func (w *world) fill(n *node) {
	n.disk.Full = true
	w.result.Fulls++
	w.log("node %d: the disk is full", n.id)
	w.after(w.between(time.Millisecond, 100*time.Millisecond), func() { n.disk.Full = false })
}

// powerCut cuts a node's power for a while.
func (w *world) powerCut(n *node) {
	if n.up && !w.calm {
		n.crash(true)
		w.after(w.between(time.Millisecond, 200*time.Millisecond), n.restart)
	}
}

func (w *world) scheduleFaults() {
	p := w.plan
	w.every(p.crashes, func() {
		n, power := w.anyNode(), w.faults.IntN(2) == 0
		if !n.up {
			return
		}
		n.crash(power)
		w.after(w.between(time.Millisecond, 200*time.Millisecond), func() {
			n.restart()
			if w.faults.IntN(4) == 0 { // soon after it read another process's leftovers
				w.after(w.between(100*time.Microsecond, 4*time.Millisecond), func() { w.powerCut(n) })
			}
		})
	})
	w.every(p.clientCrashes, func() {
		if c := w.anyClient(); c != nil {
			c.crash()
		}
	})
	w.every(p.fulls, func() { w.fill(w.anyNode()) })
	w.every(p.slows, func() {
		n := w.anyNode()
		n.slow = 20
		w.after(w.between(time.Millisecond, 100*time.Millisecond), func() { n.slow = 1 })
	})
	w.every(p.sicks, func() { w.anyNode().disk.Sick = true })
	w.every(p.cuts, func() {
		n := w.anyNode()
		n.cut = true
		w.log("node %d is cut off", n.id)
		w.after(w.between(time.Millisecond, 100*time.Millisecond), func() { n.cut = false })
	})
	w.every(p.skews, func() {
		n := w.anyNode()
		n.skew = time.Duration(w.faults.IntN(int64(100*time.Millisecond))) - 50*time.Millisecond
		w.log("node %d: the clock is set to %v from the right time", n.id, n.skew)
	})
	w.every(p.damages, func() {
		if n := w.anyNode(); p.copies == 1 || w.faults.IntN(4) > 0 {
			w.damage(n)
		} else {
			w.lose(n)
		}
	})
	w.every(p.pauses, func() {
		if n := w.anyNode(); n.up {
			n.agent.Pause(w.faults.IntN(2) == 0)
		}
	})
}

// repair ends all faults.
func (w *world) repair() {
	w.calm = true
	w.log("everything is repaired")
	for _, n := range w.nodes {
		n.disk.Full, n.disk.Sick, n.slow, n.cut = false, false, 1, false
		if n.up {
			n.agent.Pause(false)
		} else {
			n.start()
		}
	}
}

// plan holds the choices of a seed: the size of the world and the rates of its faults.
type plan struct {
	nodes, clients, objects, copies int
	size                            int64 // of an object
	operations                      int   // per client
	parallel                        int64 // concurrent operations per client
	reads                           float64
	batch                           int
	policy                          twochoice.Policy
	choices                         twochoice.Choices
	idleOps                         int
	compactAbove                    int

	lost, doubled float64 // shares of messages
	delay         time.Duration
	straggling    float64 // share of messages that take much longer
	patience      time.Duration
	think         time.Duration
	impatient     float64       // share of operations given up by their callers if they take long
	orphans       time.Duration // fragment age after which stores ask if it is needed

	crashes, clientCrashes, fulls, slows, sicks, cuts, pauses, skews, damages float64 // per second
}

// chance returns one of the values at random.
func chance[T any](r *sim.Stream, values ...T) T { return values[r.IntN(int64(len(values)))] }

func makePlan(seed uint64) plan {
	r := sim.NewStream(seed, "plan")
	p := plan{
		nodes: 2 + int(r.IntN(4)), clients: 1 + int(r.IntN(4)), objects: 1 + int(r.IntN(3)),
		copies: chance(r, 1, 1, 1, 2), size: chance[int64](r, 16, 64, 256), operations: 12 + int(r.IntN(24)),
		parallel: 1 + r.IntN(4), reads: chance(r, 0.2, 0.5), batch: chance(r, 1, 4),
		policy:  chance(r, twochoice.Policies[:len(twochoice.Policies)-1]...), // a store cannot use the oracle
		choices: chance(r, twochoice.HomeRandom, twochoice.RandomRandom), idleOps: chance(r, 0, 100, 100),
		compactAbove: chance(r, 0, 4, 20), lost: chance(r, 0, 0.02, 0.2), doubled: chance(r, 0, 0.1, 0.3),
		delay: chance(r, 100*time.Microsecond, time.Millisecond), straggling: chance(r, 0, 0.05, 0.2),
		patience: chance(r, 10*time.Millisecond, 40*time.Millisecond),
		think:    chance(r, time.Duration(0), 2*time.Millisecond, 20*time.Millisecond),
		orphans:  chance(r, 5*time.Millisecond, 30*time.Millisecond, 300*time.Millisecond),
	}
	if r.IntN(8) > 0 { // one in eight has no crashes
		p.crashes, p.clientCrashes = chance(r, 0.0, 2, 10, 40), chance(r, 0.0, 0, 5)
	}
	p.fulls, p.slows, p.sicks = chance(r, 0.0, 0, 5, 40), chance(r, 0.0, 5), chance(r, 0.0, 0, 2)
	p.cuts, p.pauses, p.skews = chance(r, 0.0, 0, 5), chance(r, 0.0, 10), chance(r, 0.0, 0, 10)
	p.damages = chance(r, 0.0, 20, 20, 60) // of sectors
	p.impatient = chance(r, 0.0, 0, 0.3)
	return p
}

// result is the outcome of a run.
type result struct {
	totals
	err error // first violation, nil if the promise was kept
}

// totals counts the events of one run or many.
type totals struct {
	Reads, Acked                                      int // compared, acknowledged
	Crashes, ClientCrashes, GivenUp                   int
	Redirected, Returned, Fenced                      int // writes, ranges, writes that will never be ordered
	Messages, Lost, Doubled                           int
	Torn, Repaired                                    int // logs, blocks of logs
	Fulls, Sicks, Compactions                         int // full disks, failed syncs
	Flipped, Zeroed, Dropped, Misdirected, Unreadable int // sectors
	OfLogs, OfBases, OfFragments                      int // damaged sectors
	Missing, Named                                    int // fragments, errors that name their object
	Events                                            uint64
	Virtual                                           time.Duration
}

// add adds the counts of another run.
func (t *totals) add(r result) {
	sum, more := reflect.ValueOf(t).Elem(), reflect.ValueOf(r.totals)
	for i := range sum.NumField() {
		if f := sum.Field(i); f.CanUint() {
			f.SetUint(f.Uint() + more.Field(i).Uint())
		} else {
			f.SetInt(f.Int() + more.Field(i).Int())
		}
	}
}

// damaged counts a damaged sector.
func (t *totals) damaged(kind simdisk.Damage, name string) {
	*[simdisk.Damages]*int{&t.Flipped, &t.Zeroed, &t.Dropped, &t.Misdirected, &t.Unreadable}[kind]++
	switch name[0] {
	case 'b':
		t.OfBases++
	case 'f':
		t.OfFragments++
	default:
		t.OfLogs++
	}
}
