package ceph

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// option sets an option of the configuration database.
func option(t *testing.T, c *Cluster, name, value string) {
	t.Helper()
	if e := c.Act([]Action{{Action: "SetOption", Option: name, Setting: value}})[0]; !e.OK {
		t.Fatal(e.Message)
	}
}

// servedBy runs random reads and returns the OSDs' shares of them, and the benchmark.
func servedBy(t *testing.T, c *Cluster, seconds float64) ([]float64, *bench) {
	t.Helper()
	before := make([]int64, len(c.osds))
	for i, o := range c.osds {
		before[i] = o.reads
	}
	start(t, c, "rand", 16, seconds)
	b := finish(t, c, time.Hour)
	shares := make([]float64, len(c.osds))
	for i, o := range c.osds {
		shares[i] = float64(o.reads-before[i]) / float64(b.finished)
	}
	atRest(t, c)
	return shares, b
}

func TestBalancedReadsGoToAnyReplica(t *testing.T) {
	c := build(t, testConfig(), 800)
	option(t, c, optionPolicy, policyBalance)
	shares, _ := servedBy(t, c, 120)
	for i, share := range shares {
		held := 0
		for pg := range int32(128) {
			if slices.Contains(c.members(pg), int32(i)) {
				held += int(c.pgs[pg].objects)
			}
		}
		if want := float64(held) / 1600; share < want-0.02 || share > want+0.02 {
			t.Errorf("osd.%d serves %.3f of the reads and holds %.3f of the replicas", i, share, want)
		}
	}
	if c.pgs[0].interval != 0 {
		t.Error("a PG peered")
	}
}

func TestReadsNearAClientGoToTheNearestReplica(t *testing.T) {
	config := testConfig()
	for i := range config.OSDs {
		config.HostNames = append(config.HostNames, "osd"+string(rune('0'+i)))
		config.RackNames = append(config.RackNames, []string{"left", "right"}[i/4])
	}
	for _, d := range []struct {
		client, location string
		near             []int32 // in order of distance, one class each
	}{
		{"admin", "", nil}, // the primary is as near as any
		{"osd3", "", []int32{3}},
		{"admin", "host=osd5 root=default", []int32{5}},
		{"admin", "root=default rack=left", []int32{0, 1, 2, 3}},
		{"admin", "root=elsewhere", nil},
	} {
		config.ClientNames = []string{d.client}
		c := build(t, config, 400)
		option(t, c, optionPolicy, policyLocalize)
		if d.location != "" {
			option(t, c, optionLocation, d.location)
		}
		start(t, c, "rand", 4, 1)
		c.Advance(time.Millisecond)
		for pg := range int32(128) {
			want := c.primary(pg)
			if !slices.Contains(d.near, want) {
				for _, osd := range c.members(pg) {
					if slices.Contains(d.near, osd) {
						want = osd
						break
					}
				}
			}
			if found := c.bench.reader(c, 0, pg); found != want {
				t.Errorf("%+v: PG %x on %v is read from osd.%d", d, pg, c.members(pg), found)
			}
		}
	}
}

func TestAPolicyIsThatOfTheClientsStart(t *testing.T) {
	c := build(t, testConfig(), 400)
	start(t, c, "rand", 16, 10)
	c.Advance(time.Second)
	option(t, c, optionPolicy, policyBalance)
	c.Act([]Action{{Action: "SetPrimaryAffinity", OSD: 1, Value: 0}})
	finish(t, c, time.Minute)
	before := c.osds[1].reads
	if shares, _ := servedBy(t, c, 20); shares[1] < 0.05 {
		t.Errorf("osd.1, which leads none, serves %.3f", shares[1])
	}
	if before > 100 {
		t.Errorf("osd.1 served %d reads of the first client", before)
	}
}

func TestWritesGoToThePrimary(t *testing.T) {
	c := build(t, testConfig(), 0)
	option(t, c, optionPolicy, policyBalance)
	start(t, c, "write", 16, 5)
	c.Advance(4 * time.Second)
	for i := range c.ops {
		if p := &c.ops[i]; p.used && p.kind == opWrite && p.osd != c.primary(p.pg) {
			t.Errorf("a write of PG %x is at osd.%d", p.pg, p.osd)
		}
	}
	finish(t, c, time.Minute)
	atRest(t, c)
}

func TestAPrimaryIsChosenByUpmap(t *testing.T) {
	c := build(t, testConfig(), 400)
	pg := int32(9)
	up := slices.Clone(c.osdMap.of(pg))
	outside := int32(slices.IndexFunc(c.osds, func(o *osd) bool { return !slices.Contains(up, o.id) }))
	act := func(name string, osd int32) Effect {
		return c.Act([]Action{{Action: name, PG: c.pgID(pg), OSD: int(osd)}})[0]
	}
	if e := act("SetUpmapPrimary", outside); e.OK || !strings.Contains(e.Message, "no replica") {
		t.Errorf("osd.%d, which has no replica: %+v", outside, e)
	}
	if e := act("SetUpmapPrimary", up[0]); !e.OK || !e.already {
		t.Errorf("%+v", e)
	}
	if e := act("SetUpmapPrimary", up[1]); !e.OK || e.Detail["epochs"] != 1 || e.Detail["stall_s"] <= 0 {
		t.Errorf("%+v", e)
	}
	if found := c.members(pg); !slices.Equal(found, []int32{up[1], up[0]}) || c.mover.live != 0 {
		t.Errorf("%v after %v, %d moves", found, up, c.mover.live)
	}
	// Out of the map, it leads nothing; back in it leads again.
	for value, leads := range map[float64]bool{0: false, 1: true} {
		c.Act([]Action{{Action: "SetReweight", OSD: int(up[1]), Value: value}})
		if found := c.osdMap.of(pg)[0] == up[1]; value == 0 && found != leads {
			t.Errorf("reweight %g: osd.%d leads %v", value, up[1], found)
		}
	}
	c.Act([]Action{{Action: "SetReweight", OSD: int(up[1]), Value: 1}})
	c.Settle(time.Hour)
	if c.primary(pg) != up[1] {
		t.Errorf("osd.%d leads, not osd.%d", c.primary(pg), up[1])
	}
	if e := act("ClearUpmapPrimary", 0); !e.OK || !slices.Equal(c.osdMap.of(pg), up) {
		t.Errorf("%+v, %v", e, c.osdMap.of(pg))
	}
}

func TestTheBalancersReadModesEvenOutPrimaries(t *testing.T) {
	spread := func(c *Cluster) int {
		least, most := 128, 0
		for _, o := range c.osds {
			least, most = min(least, o.primaries), max(most, o.primaries)
		}
		return most - least
	}
	for mode, want := range map[string]struct{ items, leads bool }{
		"upmap": {true, false}, "read": {false, true}, "upmap-read": {true, true}, "none": {false, false},
	} {
		c := build(t, testConfig(), 100)
		before := spread(c)
		c.Act([]Action{{Action: "SetBalancer", Mode: mode}})
		c.Advance(30 * time.Minute)
		s := c.Save()
		if s.Balancer != mode || len(s.Items) > 0 != want.items || len(s.Leads) > 0 != want.leads {
			t.Errorf("%s: %d items, %d primaries", mode, len(s.Items), len(s.Leads))
		}
		if want.leads && spread(c) >= before {
			t.Errorf("%s: primaries differ by %d, before by %d", mode, spread(c), before)
		}
		atRest(t, c)
	}
}
