// Package ceph models a Ceph cluster on the event kernel: data placement, the I/O path of reads and
// replicated writes, map epochs and peering, recovery, and fio's additional load.
// docs/simulation.md describes the model and its distance from a real cluster.
package ceph

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"hotbed/dataplane/sim"
)

// Cluster is a modelled cluster with its clients and disturbances. Not for concurrent use.
type Cluster struct {
	k   *sim.Kernel
	cfg Config

	osdMap  *osdMap
	noted   []bool  // by PG: its view has changed since the last TakeChanges
	changes []int32 // the PGs in noted
	acting  []int32 // by PG, size entries: the serving OSDs; differs from up while data moves
	pgs     []pgState
	osds    []*osd
	clients []clientNode
	uplinks []uplink // by rack

	ops     []op
	freeOps []uint32

	objects objectSet
	bench   *bench
	record  recorder
	mover   mover
	monitor monitor

	plan uint32 // counts calls of ForgetPlan

	partRandom  sim.Stream
	peerRandom  sim.Stream
	queueRandom sim.Stream
}

// New builds an idle cluster at time 0: every OSD up and in, every PG active, no objects.
func New(cfg Config) (*Cluster, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	c := &Cluster{k: sim.New(), cfg: cfg}
	c.monitor.balancer = "none"
	c.monitor.options = map[string]string{optionPolicy: policyPrimary, optionLocation: ""}
	if c.mclock() {
		c.monitor.options[optionProfile] = cfg.MClockProfile
	}
	c.partRandom = *sim.NewStream(cfg.Seed, "ceph/parts")
	c.queueRandom = *sim.NewStream(cfg.Seed, "ceph/queue")
	c.peerRandom = *sim.NewStream(cfg.Seed, "ceph/peering")
	order := make([]int32, cfg.OSDs)
	for i := range order {
		order[i] = int32(i)
		if len(cfg.AddOrder) > 0 {
			order[i] = int32(cfg.AddOrder[i])
		}
	}
	crush := newCrush(hostIDs(cfg.OSDs), order, cfg.RackHosts, inWeight)
	c.osdMap = newOSDMap(crush, cfg.OSDs, cfg.Pool, cfg.PGs, cfg.Size)
	c.acting = append([]int32(nil), c.osdMap.upSet...)
	c.pgs = make([]pgState, cfg.PGs)
	c.noted = make([]bool, cfg.PGs)
	for i := range c.pgs {
		c.pgs[i].active = true
	}
	c.osds = make([]*osd, cfg.OSDs)
	for i := range c.osds {
		c.osds[i] = newOSD(c, i)
	}
	c.clients = make([]clientNode, cfg.Clients)
	c.uplinks = make([]uplink, cfg.OSDs)
	for pg := range int32(cfg.PGs) {
		c.lead(c.primary(pg), 1)
	}
	c.monitor.reported = true
	c.k.After(sim.Seconds(cfg.BalancerEvery), sim.Func(c.onBalance), 0)
	return c, nil
}

// Advance runs until time t, or until the benchmark's end if earlier.
func (c *Cluster) Advance(t time.Duration) {
	if t > c.k.Now() {
		c.k.RunUntil(t)
	}
}

// ref names an op by its slot and the slot's generation, so that an event of a finished op finds
// nothing.
type ref uint64

type opKind uint8

const (
	opRead    opKind = iota // a client's
	opWrite                 // a client's, at the primary
	opReplica               // a write at another member
	opPeer                  // a member's part of a peering
	opPull                  // recovery: the read at the primary
	opPush                  // recovery: the write at the target
)

// op is an operation at one OSD.
type op struct {
	gen       uint32
	kind      opKind
	used      bool
	locked    bool  // holds its PG's lock and a thread, if it is a client's
	committed bool  // of a write: on the primary's own disk
	pg, osd   int32 // location
	slot      int32 // of the client, or the number of a move
	try       uint32
	interval  uint32
	left      int32 // parts at the disk; of a peering: missing commits
	waits     int32 // commits that a write still needs
	parent    ref
	offset    int64
	bytes     int64
	submitted int64
	gap       int64
	came      time.Duration
	began     time.Duration // has its PG's lock
}

// recovers reports whether an op is part of a copy.
func (o *op) recovers() bool { return o.kind == opPull || o.kind == opPush }

func (c *Cluster) newOp(kind opKind, pg, osd int32) (ref, *op) {
	var i uint32
	if n := len(c.freeOps); n > 0 {
		i = c.freeOps[n-1]
		c.freeOps = c.freeOps[:n-1]
	} else {
		c.ops = append(c.ops, op{gen: 1})
		i = uint32(len(c.ops) - 1)
	}
	o := &c.ops[i]
	*o = op{gen: o.gen, used: true, kind: kind, pg: pg, osd: osd, interval: c.pgs[pg].interval}
	return ref(o.gen)<<32 | ref(i), o
}

// at returns the op named r, or nil if it is gone.
func (c *Cluster) at(r ref) *op {
	if r == 0 {
		return nil
	}
	o := &c.ops[uint32(r)]
	if o.gen != uint32(r>>32) {
		return nil
	}
	return o
}

func (c *Cluster) freeOp(r ref) {
	o := &c.ops[uint32(r)]
	o.gen++
	o.used = false
	c.freeOps = append(c.freeOps, uint32(r))
}

// clientNode is a machine that runs a benchmark: its link and the thread that verifies reads.
type clientNode struct {
	in      ingress
	outFree time.Duration
	flight  int64   // bytes of its operations in progress
	waiting []int32 // slots with operations beyond the limit
	cpuFree time.Duration
}

// ingress is the receiving side of a link: messages pass one after the other at its rate. A message
// arrives while it is being sent, so an idle link that is at least as fast as the sender adds no
// time.
type ingress struct {
	free time.Duration
	got  int64
}

// end returns the time at which a message of n bytes is received at rate `rate`. A link of rate
// `from` has just sent its last byte.
func (in *ingress) end(now time.Duration, n int64, from, rate float64) time.Duration {
	began := max(0, now-sim.Seconds(float64(n)/from))
	in.free = max(in.free, began) + sim.Seconds(float64(n)/rate)
	in.got += n
	return max(now, in.free)
}

// objectSet is the set of existing objects, for read benchmarks.
type objectSet struct {
	count int64
	bytes int64 // of each
	pg    []int32
}

// Fill creates objects in the pool at once, named like rados bench's, in place of those of an
// earlier Fill.
func (c *Cluster) Fill(count, bytes int64, name func(int64) []byte) error {
	if count < 1 || bytes < 1 {
		return fmt.Errorf("%d objects of %d bytes cannot be filled in", count, bytes)
	}
	return c.fill(count, bytes, func(i int64) int32 { return c.osdMap.pgOf(name(i)) })
}

func (c *Cluster) fill(count, bytes int64, pgOf func(int64) int32) error {
	if need, room := count*bytes*int64(c.cfg.Size), c.room(); need > room {
		return fmt.Errorf("%d objects of %d bytes take %d bytes with their replicas, there are %d",
			count, bytes, need, room)
	}
	for pg := range c.pgs {
		c.store(int32(pg), -c.pgs[pg].bytes, -c.pgs[pg].objects)
	}
	c.objects = objectSet{count: count, bytes: bytes, pg: make([]int32, count)}
	for i := range count {
		pg := pgOf(i)
		c.objects.pg[i] = pg
		c.store(pg, bytes, 1)
	}
	for _, o := range c.osds {
		o.filled, o.writeAt, o.reported = o.stored, o.stored, o.stored
	}
	return nil
}

// room returns the space of all disks for objects.
func (c *Cluster) room() int64 { return int64(c.cfg.OSDs) * (c.cfg.DiskSize - c.dataStart()) }

// store adds bytes and objects to a PG and its holders.
func (c *Cluster) store(pg int32, bytes, objects int64) {
	c.note(pg)
	c.pgs[pg].bytes += bytes
	c.pgs[pg].objects += objects
	for _, member := range c.holders(pg) {
		c.keep(c.osds[member], bytes)
	}
}

const logBytes = 64 << 20 // area of the log of an OSD's key-value store

// dataStart returns the start of an OSD's objects on its disk: after fio's files and the log.
func (c *Cluster) dataStart() int64 { return min(c.cfg.Scratch+logBytes, c.cfg.DiskSize-1<<19) }

// place returns an object's disk offset: objects are stored in writing order.
func (c *Cluster) place(o *osd, object, bytes int64) int64 {
	start := c.dataStart()
	at := start
	if c.objects.count > 0 {
		over := max(float64(o.filled), float64(c.cfg.Spread*float64(c.cfg.DiskSize-start)))
		at += int64(over * (float64(object) / float64(c.objects.count)))
	}
	return c.clamp(at&^4095, bytes)
}

// clamp limits the offset of an object with the gaps between its parts to the disk.
func (c *Cluster) clamp(at, bytes int64) int64 {
	parts := bytes/c.cfg.MaxIO + 1
	return max(0, min(at, c.cfg.DiskSize-bytes-parts*partGap))
}

// members returns the OSDs that serve a PG now.
func (c *Cluster) members(pg int32) []int32 {
	at := int(pg) * c.cfg.Size
	return trim(c.acting[at : at+c.cfg.Size])
}

// primary returns the OSD that serves a PG's reads, or none.
func (c *Cluster) primary(pg int32) int32 { return c.acting[int(pg)*c.cfg.Size] }

// lead adds to an OSD's number of primaries.
func (c *Cluster) lead(osd int32, count int) {
	if osd != none {
		c.osds[osd].primaries += count
	}
}

// note records that a PG's view may have changed.
func (c *Cluster) note(pg int32) {
	if !c.noted[pg] {
		c.noted[pg] = true
		c.changes = append(c.changes, pg)
	}
}

// pin records that a PG's upmaps were changed.
func (c *Cluster) pin(pg int32) {
	c.osdMap.pin(pg)
	c.note(pg)
}

// TakeChanges returns the PGs with possibly changed views since the last call, in numerical order.
func (c *Cluster) TakeChanges() []int32 {
	changes := c.changes
	c.changes = nil
	for _, pg := range changes {
		c.noted[pg] = false
	}
	slices.Sort(changes)
	return changes
}

// Saved is all state that a controller may change.
type Saved struct {
	Affinity []float64             `json:"primary_affinity"`
	Reweight []float64             `json:"reweight"`
	Upmap    map[string][]int32    `json:"pg_upmap"`
	Items    map[string][][2]int32 `json:"pg_upmap_items"`
	Leads    map[string]int32      `json:"pg_upmap_primary"`
	Balancer string                `json:"balancer"`
	Options  map[string]string     `json:"options"`
}

// Save returns all state that a controller may change.
func (c *Cluster) Save() Saved {
	s := Saved{
		Upmap: map[string][]int32{}, Items: map[string][][2]int32{}, Leads: map[string]int32{},
		Balancer: c.monitor.balancer, Options: maps.Clone(c.monitor.options),
	}
	for i := range c.osds {
		s.Affinity = append(s.Affinity, float64(c.osdMap.affinity[i])/maxAffinity)
		s.Reweight = append(s.Reweight, float64(c.osdMap.reweight[i])/inWeight)
	}
	for pg, set := range c.osdMap.upmap {
		s.Upmap[c.pgID(pg)] = slices.Clone(set)
	}
	for pg, items := range c.osdMap.items {
		s.Items[c.pgID(pg)] = slices.Clone(items)
	}
	for pg, lead := range c.osdMap.leads {
		s.Leads[c.pgID(pg)] = lead
	}
	return s
}

func (c *Cluster) pgID(pg int32) string { return fmt.Sprintf("%d.%x", c.cfg.Pool, pg) }

// AtRest reports whether every OSD is up and in, every PG is active and where the map wants it, and
// nothing is being moved.
func (c *Cluster) AtRest() bool {
	for i := range c.osds {
		if !c.osdMap.up[i] || c.osdMap.reweight[i] == 0 {
			return false
		}
	}
	for pg := range c.pgs {
		if !c.pgs[pg].active || c.pgs[pg].hold != nil {
			return false
		}
	}
	return c.mover.live == 0
}

// Settle advances until the cluster is at rest, at most `limit`, and reports whether it is.
func (c *Cluster) Settle(limit time.Duration) bool {
	end := c.k.Now() + limit
	for !c.AtRest() && c.k.Now() < end {
		c.k.RunUntil(min(end, c.k.Now()+100*time.Millisecond))
	}
	return c.AtRest()
}

// leastUsed is mon_reweight_min_bytes_per_osd.
const leastUsed = 100 << 20

// keep adds bytes of objects to an OSD's store.
func (c *Cluster) keep(o *osd, bytes int64) {
	if in := c.statsInterval(o); in > o.reportedIn {
		o.reported, o.reportedIn = o.stored, in
	}
	o.stored += bytes
}

// reportedUsed returns the manager's knowledge of an OSD's used space, as in `ceph osd df`: objects
// as of the OSD's last report, the store's own space and, on a shared file system, fio's files.
func (c *Cluster) reportedUsed(o *osd) int64 {
	other := c.cfg.StoreBytes
	if c.cfg.FileSystem > 0 && o.fio.files {
		other += int64(c.cfg.FioJobs) * c.cfg.FioBytes
	}
	if c.cfg.StatsEvery > 0 && c.statsInterval(o) == o.reportedIn {
		return o.reported + other
	}
	return o.stored + other
}

// statsInterval returns the number of the current interval between an OSD's reports, from 1. OSDs
// report in turn.
func (c *Cluster) statsInterval(o *osd) int64 {
	if c.cfg.StatsEvery == 0 {
		return 0
	}
	turn := float64(o.id) / float64(len(c.osds))
	return 1 + int64(c.k.Now().Seconds()/c.cfg.StatsEvery+turn)
}
