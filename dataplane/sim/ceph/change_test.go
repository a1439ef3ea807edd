package ceph

import (
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"hotbed/dataplane/sim"
	"hotbed/dataplane/tests/must"
)

func TestAffinityMovesReadsAwayAndStallsForAWhile(t *testing.T) {
	c := build(t, testConfig(), 400)
	start(t, c, "rand", 16, 30)
	c.Advance(5 * time.Second)
	effects := c.Act([]Action{{Action: "SetPrimaryAffinity", OSD: 1, Value: 0}})
	if !effects[0].OK || c.osdMap.epoch != 2 {
		t.Fatalf("%+v, epoch %d", effects, c.osdMap.epoch)
	}
	c.until(c.k.Now()+10*time.Second, func() bool { return c.monitor.watched == 0 })
	stall, known := c.monitor.stall, c.monitor.stalled
	if !known || stall < 100*time.Millisecond || stall > 3*time.Second {
		t.Errorf("a stall of %v, %v", stall, known)
	}
	before := c.osds[1].reads
	finish(t, c, 60*time.Second)
	if after := c.osds[1].reads; after-before > 8 || c.osds[1].primaries != 0 {
		t.Errorf("osd.1 served %d reads more and leads %d PGs", after-before, c.osds[1].primaries)
	}
	if c.pgs[0].interval > 1 {
		t.Error("a PG peered more than once")
	}
	atRest(t, c)
}

func TestAMovedReplicaIsCopiedWithinTheLimits(t *testing.T) {
	c := build(t, testConfig(), 800)
	pg := int32(9)
	up := c.osdMap.of(pg)
	target := int32(0)
	for slices.Contains(up, target) {
		target++
	}
	objects := c.pgs[pg].objects
	effects := c.Act([]Action{{Action: "MoveReplica", PG: c.pgID(pg), Source: int(up[1]),
		Target: int(target)}})
	if !effects[0].OK || effects[0].Detail["bytes_moved"] != float64(c.pgs[pg].bytes) {
		t.Fatalf("%+v", effects)
	}
	if slices.Contains(c.members(pg), target) || !slices.Contains(c.osdMap.of(pg), target) {
		t.Fatalf("before the copy up is %v and acting %v", c.osdMap.of(pg), c.members(pg))
	}
	began := c.k.Now()
	if !c.Settle(time.Hour) {
		t.Fatal("it never ends")
	}
	if !slices.Contains(c.members(pg), target) || c.pgs[pg].hold != nil {
		t.Errorf("after the copy acting is %v", c.members(pg))
	}
	least := time.Duration(objects-1) * 100 * time.Millisecond
	if took := c.k.Now() - began; took < least || took > 3*least+10*time.Second {
		t.Errorf("%d objects took %v", objects, took)
	}
	atRest(t, c)
}

// The first changes of the real command on four deployments of the testbed (Ceph 16.2.15, eight
// OSDs), and the reported number of moved bytes. The order of the hosts in the CRUSH map and the
// process that wrote the objects follow uniquely from the recorded primaries and bytes.
func TestReweightDecidesAsRealClustersDid(t *testing.T) {
	byNumber, third := []int{0, 1, 2, 3, 4, 5, 6, 7}, []int{0, 1, 3, 5, 4, 2, 6, 7}
	for _, d := range []struct {
		order   []int
		pid     int
		objects int64
		size    int64
		changed string
		moved   float64
	}{
		{[]int{0, 2, 1, 3, 4, 5, 6, 7}, 475, 1433, 4 << 20, "osd.5 1.0000 to 0.9500", 79691776},
		{[]int{0, 1, 3, 2, 4, 5, 6, 7}, 549, 896, 4 << 20, "osd.5 1.0000 to 0.9500", 37748736},
		{byNumber, 979, 358, 16 << 20, "no change", 0},
		{byNumber, 11661, 5734, 1 << 20, "no change", 0},
		{byNumber, 23309, 8305, 256 << 10, "no change", 0},
		{byNumber, 34155, 1433, 4 << 20, "osd.5 1.0000 to 0.9500", 71303168},
		{third, 14551, 3584, 1 << 20, "no change", 0},
		{third, 26472, 8305, 256 << 10, "no change", 0},
		{third, 38378, 896, 4 << 20, "osd.3 1.0000 to 0.9500", 67108864},
		{
			third, 595, 224, 16 << 20,
			"osd.2 1.0000 to 0.9500, osd.7 1.0000 to 0.9500", 335544320,
		},
	} {
		config := testConfig()
		config.AddOrder = d.order
		c := build(t, config, 0)
		prefix := "benchmark_data_admin_" + strconv.Itoa(d.pid) + "_object"
		err := c.Fill(d.objects, d.size, func(i int64) []byte {
			return strconv.AppendInt([]byte(prefix), i, 10)
		})
		must.Succeed(t, err)
		e := c.Act([]Action{{
			Action: "ReweightByUtilization", Oload: 120, MaxChange: 0.05, MaxOSDs: 4,
		}})[0]
		if !e.OK || e.Message != d.changed || e.Detail["bytes_moved"] != d.moved {
			t.Errorf("%d objects of %d bytes: %+v, the real one: %s, %.0f bytes", d.objects, d.size, e,
				d.changed, d.moved)
		}
	}
}

func TestTheManagersFillIsOfAnOSDsLastReport(t *testing.T) {
	config := testConfig()
	config.StatsEvery = 8
	c := build(t, config, 0)
	first, last := c.osds[0], c.osds[7] // they report at 8, 16 ... and at 1, 9 ... seconds
	own := config.StoreBytes
	c.Advance(500 * time.Millisecond)
	c.keep(first, 10)
	c.keep(last, 10)
	c.Advance(1500 * time.Millisecond)
	c.keep(last, 5)
	if c.reportedUsed(first) != own || c.reportedUsed(last) != own+10 {
		t.Errorf("known are %d and %d", c.reportedUsed(first)-own, c.reportedUsed(last)-own)
	}
	c.Advance(9500 * time.Millisecond)
	if c.reportedUsed(first) != own+10 || c.reportedUsed(last) != own+15 {
		t.Errorf("then %d and %d", c.reportedUsed(first)-own, c.reportedUsed(last)-own)
	}
}

func TestAnEmptyStoreIsNotReweighted(t *testing.T) {
	config := testConfig()
	config.StoreBytes = 99 << 20
	c := build(t, config, 0)
	e := c.Act([]Action{{Action: "ReweightByUtilization", Oload: 120, MaxChange: 0.05, MaxOSDs: 4}})
	if e[0].OK {
		t.Errorf("%+v", e[0])
	}
}

// The rule of Ceph 9.2.1 (Infernalis), written down from its description: an OSD whose use is at least
// oload percent of the mean gets weight * mean / use, and one at or below the mean the same, if that is
// more and at most 1. There is no limit of a change or of their number.
func infernalis(uses []float64, weights []uint32, oload float64) []uint32 {
	total := 0.0
	for _, use := range uses {
		total += use
	}
	mean := total / float64(len(uses))
	wanted := slices.Clone(weights)
	for i, use := range uses {
		scaled := math.MaxUint32 * 1.0
		if use > 0 {
			scaled = math.Min(scaled, mean/use*float64(weights[i]))
		}
		switch {
		case use >= mean*oload/100:
			wanted[i] = uint32(scaled)
		case use <= mean:
			wanted[i] = max(weights[i], uint32(math.Min(scaled, 0x10000)))
		}
	}
	return wanted
}

func TestReweightWithoutLimitsIsTheRuleOfInfernalis(t *testing.T) {
	draw := sim.StreamOf(5, "test/reweight", 0)
	for range 200 {
		config := testConfig()
		config.StatsEvery, config.StoreBytes = 0, 400<<20
		c := build(t, config, 0)
		total := float64(config.DiskSize - config.Scratch)
		uses := make([]float64, 8)
		weights := make([]uint32, 8)
		for i, o := range c.osds {
			o.stored = int64(draw.Uniform() * 2e9)
			weights[i] = uint32(1 + draw.Uniform()*0xffff)
			c.osdMap.reweight[i] = weights[i]
			uses[i] = float64(o.stored+config.StoreBytes) / total
		}
		c.Act([]Action{{Action: "ReweightByUtilization", Oload: 120, MaxChange: 1, MaxOSDs: 10000}})
		wanted := infernalis(uses, weights, 120)
		for i, got := range c.osdMap.reweight {
			if math.Abs(float64(got)-float64(wanted[i])) > 1 { // sums in another order
				t.Fatalf("use %v, weights %v became %v, by the rule %v", uses, weights,
					c.osdMap.reweight, wanted)
			}
		}
	}
}

// On FileStore the manager sees the files of fio's nodes; BlueStore's objects have a device alone.
func TestReweightSeesFiosFilesOnASharedFileSystem(t *testing.T) {
	for _, shared := range []bool{false, true} {
		config := testConfig()
		config.Scratch, config.StoreBytes = 4*config.FioBytes, 160<<20
		if shared {
			config.FileSystem = 5632 << 20
		}
		c := build(t, config, 0)
		for _, o := range c.osds {
			o.stored = 900 << 20
		}
		for node := range 3 {
			c.SetLoad(node, true, 0)
		}
		c.PlanLoad(time.Hour, 3, true, 0) // its files are there before its fio
		c.Act([]Action{{Action: "ReweightByUtilization", Oload: 120, MaxChange: 1, MaxOSDs: 10000}})
		for node, weight := range c.osdMap.reweight {
			if fell := weight < 0x10000; fell != (shared && node < 4) {
				t.Errorf("shared %v: weight of osd.%d is %d", shared, node, weight)
			}
		}
	}
}
