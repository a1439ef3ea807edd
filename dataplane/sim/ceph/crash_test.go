package ceph

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"hotbed/dataplane/sim"
	"hotbed/dataplane/tests/must"
)

func TestACrashIsSurvivedAndMended(t *testing.T) {
	for _, op := range []string{"rand", "write"} {
		c := build(t, testConfig(), 400)
		start(t, c, op, 16, 30)
		c.Advance(5 * time.Second)
		must.Succeed(t, c.Break(Fault{Kind: "crash", OSD: 2}))
		c.Advance(10 * time.Second)
		if c.osdMap.up[2] || c.osds[2].primaries != 0 {
			t.Errorf("osd.2 is up %v and leads %d PGs", c.osdMap.up[2], c.osds[2].primaries)
		}
		must.Succeed(t, c.Break(Fault{Kind: "restart", OSD: 2}))
		r := finish(t, c, 200*time.Second)
		if r.finished < 100 {
			t.Errorf("%s: %d operations", op, r.finished)
		}
		if !c.Settle(time.Hour) || c.osds[2].primaries == 0 {
			t.Errorf("%s: not mended", op)
		}
		atRest(t, c)
	}
}

func TestAnOSDThatStaysDownIsMarkedOutAndItsDataCopied(t *testing.T) {
	config := testConfig()
	config.OutAfter = 5
	c := build(t, config, 200)
	must.Succeed(t, c.Break(Fault{Kind: "crash", OSD: 2}))
	c.Advance(10 * time.Minute)
	for pg := range int32(128) {
		if m := c.members(pg); len(m) != 2 || slices.Contains(m, 2) {
			t.Fatalf("PG %x is on %v", pg, m)
		}
	}
	atRest(t, c)
}

// Random changes of the map and the nodes lose no operation, and the cluster comes to rest.
func FuzzNothingIsLost(f *testing.F) {
	for _, seed := range []uint64{0, 1, 2, 3, 4, 5, 61} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := sim.NewStream(seed, "fuzz")
		config := testConfig()
		config.Seed, config.PeeringCommit = seed, int(random.IntN(4))
		config.CommitWrites = 1 + int(random.IntN(3))
		config.OSDs, config.PGs, config.Size = 4+int(random.IntN(6)), 32, 1+int(random.IntN(3))
		config.MinSize = 1
		config.OpQueue = []string{"wpq", "mclock_scheduler"}[random.IntN(2)]
		config.MClockProfile, config.MClockBandwidth, config.MClockIOPS = "balanced", 150<<20, 315
		c := build(t, config, 100)
		option(t, c, optionPolicy, []string{policyPrimary, policyBalance, policyLocalize}[random.IntN(3)])
		start(t, c, []string{"rand", "write", "seq"}[random.IntN(3)], 12, 30)
		seen := make([]string, config.PGs)
		for range 40 {
			c.Advance(c.k.Now() + sim.Seconds(random.Uniform()))
			disturb(c, random)
			allIsKept(t, c, seen)
		}
		for i := range c.osds {
			for _, kind := range []string{"heal", "restart"} {
				must.Succeed(t, c.Break(Fault{Kind: kind, OSD: i}))
			}
			c.SetLoad(i, false, 0)
			c.Act([]Action{{Action: "SetReweight", OSD: i, Value: 1}})
		}
		c.Act([]Action{{Action: "SetBalancer", Mode: "none"}})
		for pg := range int32(config.PGs) { // an upmap made while an OSD was down pins too few
			c.Act([]Action{{Action: "ClearUpmap", PG: c.pgID(pg)}})
		}
		finish(t, c, 10*time.Minute)
		if !c.Settle(2 * time.Hour) {
			t.Errorf("not at rest: %d moves, %+v", c.mover.live, c.Save())
		}
		atRest(t, c)
	})
}

// allIsKept checks incrementally updated state against its definition.
func allIsKept(t *testing.T, c *Cluster, seen []string) {
	t.Helper()
	m := c.osdMap
	if !m.dirty && !m.all && len(m.repinned) == 0 && !slices.Contains(m.turned, true) {
		kept := slices.Clone(m.upSet)
		m.compute()
		if !slices.Equal(kept, m.upSet) {
			t.Error("the up sets are not those of the map")
		}
	}
	leads := make([]int, len(c.osds))
	for pg := range int32(c.cfg.PGs) {
		if osd := c.primary(pg); osd != none {
			leads[osd]++
		}
	}
	for i, o := range c.osds {
		if o.primaries != leads[i] {
			t.Errorf("osd.%d is said to lead %d PGs and leads %d", i, o.primaries, leads[i])
		}
	}
	noted := c.TakeChanges()
	for pg := range c.cfg.PGs {
		now, was := fmt.Sprint(c.pgReport(int32(pg))), seen[pg]
		if now != was && was != "" && !slices.Contains(noted, int32(pg)) {
			t.Errorf("PG %x went unnoted from %s to %s", pg, was, now)
		}
		seen[pg] = now
	}
}

// disturb applies a random disturbance to a cluster.
func disturb(c *Cluster, random *sim.Stream) {
	osd, other := int(random.IntN(int64(c.cfg.OSDs))), int(random.IntN(int64(c.cfg.OSDs)))
	pg := c.pgID(int32(random.IntN(int64(c.cfg.PGs))))
	action := Action{
		OSD: osd, Source: osd, Target: other, PG: pg, Value: random.Uniform(), Oload: 105,
		MaxChange: 0.2, MaxOSDs: 4, Mode: balancerModes[1+random.IntN(3)],
	}
	switch random.IntN(16) {
	case 0, 1:
		action.Action = "SetPrimaryAffinity"
	case 2:
		action.Action = "SwapPrimary"
	case 3:
		action.Action = "MoveReplica"
	case 4:
		action.Action = "ClearUpmap"
	case 5:
		action.Action = "ReweightByUtilization"
	case 6:
		action.Action = "SetBalancer"
	case 7:
		c.SetLoad(osd, random.Bernoulli(0.5), float64(random.IntN(2))*0.5)
		return
	case 8, 9:
		action.Action = "SetUpmapPrimary"
	case 10:
		action.Action = "ClearUpmapPrimary"
	case 11:
		action.Action = "RunReadBalancer"
	default:
		kinds := []string{"crash", "restart", "cut", "heal", "slow", "delay"}
		_ = c.Break(Fault{Kind: kinds[random.IntN(6)], OSD: osd, Factor: 1 + random.Uniform(),
			Seconds: random.Uniform() / 100})
		return
	}
	c.Act([]Action{action})
}
