package ceph

import (
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"hotbed/dataplane/tests/must"
)

// readJSON reads a recorded answer of a real cluster.
func readJSON(t *testing.T, name string, into any) {
	t.Helper()
	must.Succeed(t, json.Unmarshal(must.Read(t, filepath.Join("../../../tests/data/ceph", name)), into))
}

func pgNumber(t *testing.T, id string) int32 {
	t.Helper()
	n, err := strconv.ParseUint(id[strings.Index(id, ".")+1:], 16, 31)
	must.Succeed(t, err)
	return int32(n)
}

// newTestMap returns a pool on hosts of equal weight that were added by number.
func newTestMap(pool, osds, pgs, size, rackSize int) *osdMap {
	return newTestMapOn(hostIDs(osds), pool, pgs, size, rackSize)
}

func newTestMapOn(hosts []int32, pool, pgs, size, rackSize int) *osdMap {
	osds := make([]int32, len(hosts))
	for i := range osds {
		osds[i] = int32(i)
	}
	return newOSDMap(newCrush(hosts, osds, rackSize, 224), len(hosts), pool, pgs, size)
}

func TestPlacementIsThatOfARealCluster(t *testing.T) {
	var maps []struct {
		PG string  `json:"raw_pgid"`
		Up []int32 `json:"up"`
	}
	readJSON(t, "16.2.15/pg_maps.json", &maps)           // three hosts with one OSD each, a pool of 128 PGs
	m := newTestMapOn([]int32{-2, -5, -7}, 2, 128, 2, 0) // osd_tree.json; the ids between are shadows
	if len(maps) != 128 {
		t.Fatalf("%d PGs were recorded", len(maps))
	}
	for _, pg := range maps {
		if got := m.of(pgNumber(t, pg.PG)); !slices.Equal(got, pg.Up) {
			t.Errorf("PG %s is on %v, in the real cluster on %v", pg.PG, got, pg.Up)
		}
	}
}

func TestReweightRejectsItsShareAndMovesNothingElse(t *testing.T) {
	m := newTestMap(1, 16, 4096, 3, 0)
	before := slices.Clone(m.upSet)
	m.reweight[5], m.dirty = inWeight/4, true
	changed := m.commit()
	held, kept := 0, 0
	for pg := range m.pgNum {
		was := before[pg*3 : pg*3+3]
		if slices.Contains(was, 5) {
			held++
			if slices.Contains(m.of(int32(pg)), 5) {
				kept++
			}
		} else if slices.Contains(changed, int32(pg)) {
			t.Errorf("PG %x moved from %v to %v", pg, was, m.of(int32(pg)))
		}
	}
	if share := float64(kept) / float64(held); math.Abs(share-0.25) > 0.06 {
		t.Errorf("an OSD of reweight 0.25 kept %.2f of its PGs", share)
	}
}

func TestReplicasAreOnDistinctHostsAlsoInRacks(t *testing.T) {
	m := newTestMap(1, 200, 2048, 3, 32)
	counts := make([]int, 200)
	for pg := range int32(m.pgNum) {
		set := slices.Clone(m.of(pg))
		for _, osd := range set {
			counts[osd]++
		}
		slices.Sort(set)
		if len(slices.Compact(set)) != 3 {
			t.Fatalf("PG %x is on %v", pg, m.of(pg))
		}
	}
	if least, most := slices.Min(counts), slices.Max(counts); least < 10 || most > 60 {
		t.Errorf("between %d and %d replicas an OSD, 31 in the mean", least, most)
	}
}

func TestUpmapsAndDownOSDs(t *testing.T) {
	m := newTestMap(2, 8, 128, 2, 0)
	pg := int32(9)
	a, b := m.of(pg)[0], m.of(pg)[1]
	m.upmap[pg] = []int32{b, a}
	m.pin(pg)
	if changed := m.commit(); !slices.Equal(changed, []int32{pg}) || m.of(pg)[0] != b {
		t.Fatalf("a swap changed %v, the PG is on %v", changed, m.of(pg))
	}
	m.setAffinity(int(b), 0)
	m.commit()
	if m.of(pg)[0] != a {
		t.Errorf("affinity 0 overrules an upmap's order, yet %v", m.of(pg))
	}
	m.reweight[b], m.dirty = 0, true
	m.commit()
	if slices.Contains(m.of(pg), b) {
		t.Errorf("an upmap with an OSD that is out counts: %v", m.of(pg))
	}
	m.reweight[b], m.affinity[b], m.dirty, m.up[a] = inWeight, maxAffinity, true, false
	m.commit()
	if !slices.Equal(m.of(pg), []int32{b}) {
		t.Errorf("with one OSD down the PG is on %v", m.of(pg))
	}
}

func TestTheReadBalancerIsThatOfOsdmaptool(t *testing.T) {
	var pools []struct {
		OSDs, PGs, Size int
		Up              [][]int32
		Read            []struct {
			PG  string
			OSD int32
		}
	}
	readJSON(t, "18.2.7/osdmaptool_read.json", &pools)
	for _, pool := range pools {
		config := testConfig()
		config.OSDs, config.PGs, config.Size = pool.OSDs, pool.PGs, pool.Size
		c := build(t, config, 0)
		for pg, up := range pool.Up {
			if found := c.osdMap.of(int32(pg)); !slices.Equal(found, up) {
				t.Fatalf("PG %x is on %v, Ceph says %v", pg, found, up)
			}
		}
		effect := c.Act([]Action{{Action: "RunReadBalancer"}})[0]
		if !effect.OK || effect.Detail["primaries_changed"] != float64(len(pool.Read)) || len(pool.Read) == 0 {
			t.Errorf("%d OSDs: %+v, Ceph changed %d", pool.OSDs, effect, len(pool.Read))
		}
		for _, read := range pool.Read {
			if lead := c.osdMap.leads[pgNumber(t, read.PG)]; lead != read.OSD {
				t.Errorf("%d OSDs: osd.%d leads %s, Ceph says osd.%d", pool.OSDs, lead, read.PG, read.OSD)
			}
		}
		if again := c.Act([]Action{{Action: "RunReadBalancer"}})[0]; again.Detail["primaries_changed"] != 0 {
			t.Errorf("%d OSDs: a second run changes %g", pool.OSDs, again.Detail["primaries_changed"])
		}
	}
}
