package ceph

import (
	"math"
	"time"

	"hotbed/dataplane/sim"
)

// dmclock is the queue of an OSD's shard under mClock as Ceph 18 runs it (osd/scheduler/
// mClockScheduler and the library dmclock, without distributed counters): Gulati et al., "mClock",
// OSDI 2010, with two differences. A request gets its tags when it becomes the first of its class,
// and it costs bytes instead of 1. Limits are strict (AtLimit::Wait).
//
//	R = max(R of the class's previous request + cost/reservation, arrival); L and P likewise
//
// The smallest R is served if due. Otherwise the smallest P with a due L is served, and the
// reservation gets the request's cost back. What Ceph calls immediate (writes of replicas) goes
// first and has no tags.
type dmclock struct {
	classes   [3]tagClass
	immediate fifo[ref]
	perIO     float64       // least cost
	wake      time.Duration // time of the next call of dispatch that limits ask for; 0: none
}

// Classes of an OSD's operations.
const (
	classClient = iota
	classRecovery
	classEffort // backfill of PGs that lack no replica
)

// share is what a class gets of an OSD: shares of its bandwidth, 0 for no reservation or no limit.
type share struct{ reservation, weight, limit float64 }

// mclockProfiles holds osd_mclock_profile in Ceph 18.2 (docs.ceph.com/en/reef, mClock config
// reference): client, background recovery, background best effort.
var mclockProfiles = map[string][3]share{
	"balanced":          {{0.5, 1, 0}, {0.5, 1, 0}, {0, 1, 0.9}},
	"high_client_ops":   {{0.6, 2, 0}, {0.4, 1, 0}, {0, 1, 0.7}},
	"high_recovery_ops": {{0.3, 1, 0}, {0.7, 2, 0}, {0, 1, 0}},
}

// idleAfter is dmclock's standard_idle_age: a class without requests for so long begins again at
// the others' proportion.
const idleAfter = 600.

// nanosecond is the resolution of the clock: a tag that is due within it is due.
const nanosecond = 1e-9

// tags are a request's positions: reservation and limit in seconds of virtual time, proportion in
// bytes by weight.
type tags struct{ r, p, l float64 }

// tagged is a waiting request.
type tagged struct {
	r       ref
	cost    float64
	arrived float64
}

// tagClass is a class with its requests; head holds the first one's tags.
type tagClass struct {
	share   share // bytes per second
	queue   fifo[tagged]
	head    tags
	last    tags // of the last request with tags
	shift   float64
	arrived float64 // last arrival
}

// newDmclock returns a shard's queue.
func newDmclock(c *Config, profile string) *dmclock {
	m := &dmclock{perIO: math.Floor(c.MClockBandwidth / c.MClockIOPS)}
	never := math.Inf(-1)
	for i := range m.classes {
		m.classes[i].last = tags{never, never, never}
		m.classes[i].arrived = never
	}
	m.use(profile, c.MClockBandwidth/float64(c.Shards))
	return m
}

// use takes a profile's shares of `capacity` bytes per second, for tags of later requests.
func (m *dmclock) use(profile string, capacity float64) {
	for i, s := range mclockProfiles[profile] {
		m.classes[i].share = share{s.reservation * capacity, s.weight, s.limit * capacity}
	}
}

func (m *dmclock) len() int {
	n := m.immediate.len()
	for i := range m.classes {
		n += m.classes[i].queue.len()
	}
	return n
}

// add queues a request of a class with the given bytes of data.
func (m *dmclock) add(now float64, class int, bytes int64, r ref) {
	k := &m.classes[class]
	if now-k.arrived > idleAfter && k.queue.len() == 0 {
		m.rejoin(now, k)
	}
	k.arrived = now
	k.queue.push(tagged{r, max(float64(bytes), m.perIO), now})
	if k.queue.len() == 1 {
		k.tag()
	}
}

// rejoin shifts the proportion of a class that was idle to the least of the others.
func (m *dmclock) rejoin(now float64, k *tagClass) {
	least := math.Inf(1)
	for i := range m.classes {
		other := &m.classes[i]
		if other != k && (other.queue.len() > 0 || now-other.arrived <= idleAfter) {
			least = min(least, other.last.p+other.shift)
		}
	}
	if !math.IsInf(least, 0) {
		k.shift = least - now
	}
}

// tag computes the tags of the first request from those of the request before it.
func (k *tagClass) tag() {
	q, before := k.queue.first(), k.last
	k.head = tags{math.Inf(1), max(before.p+float64(q.cost/k.share.weight), q.arrived), math.Inf(-1)}
	if k.share.reservation > 0 {
		k.head.r = max(before.r+float64(q.cost/k.share.reservation), q.arrived)
		k.last.r = k.head.r
	}
	if k.share.limit > 0 {
		k.head.l = max(before.l+float64(q.cost/k.share.limit), q.arrived)
		k.last.l = k.head.l
	}
	k.last.p = k.head.p
}

// next takes the request to serve now. If limits forbid all, it returns 0 and the time at which the
// first may be served, +Inf if none waits.
func (m *dmclock) next(now float64) (ref, float64) {
	if m.immediate.len() > 0 {
		return m.immediate.pop(), now
	}
	now += nanosecond
	var reserved, shared *tagClass
	wake := math.Inf(1)
	for i := range m.classes {
		k := &m.classes[i]
		if k.queue.len() == 0 {
			continue
		}
		wake = min(wake, k.head.r, k.head.l)
		if k.head.r <= now && (reserved == nil || k.head.r < reserved.head.r) {
			reserved = k
		}
		if k.head.l <= now && (shared == nil || k.head.p+k.shift < shared.head.p+shared.shift) {
			shared = k
		}
	}
	switch {
	case reserved != nil:
		return reserved.pop().r, now
	case shared != nil:
		q := shared.pop()
		if shared.share.reservation > 0 {
			back := float64(q.cost / shared.share.reservation)
			shared.head.r -= back
			shared.last.r -= back
		}
		return q.r, now
	}
	return 0, wake
}

func (k *tagClass) pop() tagged {
	q := k.queue.pop()
	if k.queue.len() > 0 {
		k.tag()
	}
	return q
}

// enqueue queues an operation in its class. A read carries no data; a copy costs its object twice,
// at the source and at the target.
func (m *dmclock) enqueue(c *Cluster, r ref, p *op) {
	class, bytes := classClient, p.bytes
	switch p.kind {
	case opReplica:
		m.immediate.push(r)
		return
	case opRead:
		bytes = 0
	case opPull, opPush:
		class = classRecovery
		if c.mover.moves[p.slot].spare {
			class = classEffort
		}
	}
	m.add(c.k.Now().Seconds(), class, bytes, r)
}

// wakeAt lets a shard try again at time t.
func (c *Cluster) wakeAt(o *osd, s *shard, t time.Duration) {
	if m := s.mclock; m.wake == 0 || t < m.wake {
		m.wake = t
		c.k.At(t, sim.Func(func(k *sim.Kernel, _ uint64) {
			if m.wake == k.Now() {
				m.wake = 0
			}
			c.dispatch(o, s)
		}), 0)
	}
}

// mclock reports whether the OSDs schedule by mClock (osd_op_queue).
func (c *Cluster) mclock() bool { return c.cfg.OpQueue == "mclock_scheduler" }

// setProfile lets all OSDs use an mClock profile from now on.
func (c *Cluster) setProfile(profile string) {
	for _, o := range c.osds {
		for _, s := range o.shards {
			s.mclock.use(profile, c.cfg.MClockBandwidth/float64(c.cfg.Shards))
		}
	}
}
