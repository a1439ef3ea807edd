package ceph

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"hotbed/dataplane/sim"
)

// stallLimit is the maximum wait of a step of upmaps for its PGs.
const stallLimit = 15 * time.Second

// monitor does the work of the monitors and the manager: it carries out commands, with one epoch
// for simultaneous ones, measures stalls, and balances.
type monitor struct {
	balancer string            // its mode
	options  map[string]string // of the configuration database that a controller may set

	watched   int     // PGs of the last step that do not yet serve
	watching  []int32 // all PGs of the last step
	watchFrom time.Duration
	stall     time.Duration
	stalled   bool
	reported  bool // the stall was reported with an effect
}

// Options that a controller may set.
const (
	optionProfile  = "osd_mclock_profile"
	optionPolicy   = "rados_replica_read_policy"
	optionLocation = "crush_location"
)

// balancerModes are the modes of Ceph's balancer that the model has.
var balancerModes = []string{"none", "upmap", "read", "upmap-read"}

// Action is one change, in the terms of testbed/stores/contract.py.
type Action struct {
	Action    string  `json:"action"`
	OSD       int     `json:"osd"`
	Value     float64 `json:"value"`
	PG        string  `json:"pg"`
	Source    int     `json:"source"`
	Target    int     `json:"target"`
	Oload     int     `json:"oload"`
	MaxChange float64 `json:"max_change"`
	MaxOSDs   int     `json:"max_osds"`
	Mode      string  `json:"mode"`
	Option    string  `json:"option"`
	Setting   string  `json:"setting"` // of SetOption

	OSDs  []int32    `json:"osds"`  // of SetUpmap
	Items [][2]int32 `json:"items"` // of SetItems: from, to
}

// Effect is the result of an action.
type Effect struct {
	OK      bool               `json:"ok"`
	Message string             `json:"message"`
	Seconds float64            `json:"seconds"`
	Detail  map[string]float64 `json:"detail"`
	already bool
}

// Act carries out actions of one kind at once, as one epoch, and advances the clock by their
// duration: a command's proposal, or until a step of upmaps serves again. The stall of a step of
// affinities is reported with the next step of affinities or upmaps, which waits for it.
func (c *Cluster) Act(actions []Action) []Effect {
	effects := make([]Effect, len(actions))
	if len(actions) == 0 {
		return effects
	}
	affinities, swaps := kinds(actions)
	previous := -1.0
	if affinities || swaps {
		previous = c.previousStall()
	}
	began := c.k.Now()
	epoch := c.osdMap.epoch
	sent := false
	for i, a := range actions {
		effects[i] = c.apply(a)
		sent = sent || effects[i].OK && !effects[i].already
	}
	if sent {
		c.until(began+sim.Seconds(c.cfg.Propose), func() bool { return false })
		if c.publish() > 0 && affinities {
			c.monitor.reported = false
		}
	}
	first := map[string]float64{}
	if previous >= 0 {
		first["previous_stall_s"] = previous
	}
	took := (c.k.Now() - began).Seconds()
	if swaps {
		if c.monitor.watched > 0 {
			c.until(c.k.Now()+stallLimit, func() bool { return c.monitor.watched == 0 })
			c.monitor.reported = true
			first["stall_s"] = (c.k.Now() - began).Seconds()
			first["late"] = float64(max(0, c.monitor.watched))
		}
		first["epochs"] = float64(c.osdMap.epoch - epoch)
		c.checkLeaders(actions, effects)
	}
	for i := range effects {
		if effects[i].OK && !effects[i].already {
			effects[i].Seconds = took
		}
	}
	for key, value := range first {
		if effects[0].Detail == nil {
			effects[0].Detail = map[string]float64{}
		}
		effects[0].Detail[key] = value
	}
	return effects
}

// kinds reports whether actions contain affinities and upmaps.
func kinds(actions []Action) (affinities, swaps bool) {
	for _, a := range actions {
		switch a.Action {
		case "SetPrimaryAffinity":
			affinities = true
		case "SwapPrimary", "MoveReplica", "ClearUpmap", "SetUpmapPrimary", "ClearUpmapPrimary",
			"RunReadBalancer":
			swaps = true
		}
	}
	return affinities, swaps
}

// until runs until time t or until done is true, also past the end of a benchmark.
func (c *Cluster) until(t time.Duration, done func() bool) {
	for c.k.Now() < t && !done() {
		c.k.RunUntil(min(t, c.k.Now()+5*time.Millisecond))
	}
}

func (c *Cluster) previousStall() float64 {
	m := &c.monitor
	if m.reported {
		return -1
	}
	c.until(c.k.Now()+stallLimit, func() bool { return m.watched == 0 })
	m.reported = true
	if !m.stalled {
		return -1
	}
	return m.stall.Seconds()
}

func refused(format string, args ...any) Effect {
	return Effect{Message: fmt.Sprintf(format, args...)}
}

func already(format string, args ...any) Effect {
	return Effect{OK: true, already: true, Message: fmt.Sprintf(format, args...)}
}

func (c *Cluster) apply(a Action) Effect {
	switch a.Action {
	case "SetPrimaryAffinity":
		return c.setAffinity(a)
	case "SetReweight":
		return c.setReweight(a)
	case "SwapPrimary", "MoveReplica", "ClearUpmap":
		return c.setUpmap(a)
	case "SetUpmap", "SetItems":
		return c.putUpmap(a)
	case "ReweightByUtilization":
		return c.reweightByUtilization(a)
	case "SetUpmapPrimary", "ClearUpmapPrimary":
		return c.setUpmapPrimary(a)
	case "RunReadBalancer":
		return c.runReadBalancer()
	case "SetBalancer":
		if !slices.Contains(balancerModes, a.Mode) {
			return refused("balancer mode %q is not one of %s", a.Mode, strings.Join(balancerModes, ", "))
		}
		c.monitor.balancer = a.Mode
		return Effect{OK: true, already: true}
	case "SetOption":
		return c.setOption(a)
	}
	return refused("there is no action %q", a.Action)
}

func (c *Cluster) hasOSD(osd int) bool { return osd >= 0 && osd < len(c.osds) }

func (c *Cluster) setAffinity(a Action) Effect {
	switch {
	case !c.hasOSD(a.OSD):
		return refused("there is no osd.%d", a.OSD)
	case !(a.Value >= 0 && a.Value <= 1):
		return refused("primary affinity %g of osd.%d is not 0 to 1", a.Value, a.OSD)
	}
	value := affinityOf(a.Value)
	if c.osdMap.affinity[a.OSD] == value {
		return already("primary affinity of osd.%d is %g already", a.OSD, a.Value)
	}
	c.osdMap.setAffinity(a.OSD, value)
	return Effect{OK: true, Message: fmt.Sprintf("set osd.%d primary-affinity to %g", a.OSD, a.Value)}
}

func (c *Cluster) setReweight(a Action) Effect {
	switch {
	case !c.hasOSD(a.OSD):
		return refused("there is no osd.%d", a.OSD)
	case !(a.Value >= 0 && a.Value <= 1):
		return refused("reweight %g of osd.%d is not 0 to 1", a.Value, a.OSD)
	}
	c.osdMap.reweight[a.OSD], c.osdMap.dirty = affinityOf(a.Value), true
	return Effect{OK: true, Message: fmt.Sprintf("reweighted osd.%d to %g", a.OSD, a.Value)}
}

// pgNumberOf parses a PG's id, <pool>.<hex>.
func (c *Cluster) pgNumberOf(id string) (int32, bool) {
	var pool int
	var pg int32
	if n, err := fmt.Sscanf(id, "%d.%x", &pool, &pg); n != 2 || err != nil {
		return 0, false
	}
	return pg, pool == c.cfg.Pool && pg >= 0 && int(pg) < c.cfg.PGs
}

func (c *Cluster) setUpmap(a Action) Effect {
	pg, there := c.pgNumberOf(a.PG)
	if !there {
		return refused("there is no placement group %s", a.PG)
	}
	m := c.osdMap
	up := m.of(pg)
	switch a.Action {
	case "ClearUpmap":
		if !m.pinned(pg) {
			return already("%s has no upmap", a.PG)
		}
		delete(m.upmap, pg)
		delete(m.items, pg)
		c.pin(pg)
		return Effect{OK: true}
	case "SwapPrimary":
		if !c.hasOSD(a.OSD) || !slices.Contains(up, int32(a.OSD)) {
			return refused("osd.%d holds no replica of %s (%s)", a.OSD, a.PG, show(up))
		}
		if len(up) > 0 && up[0] == int32(a.OSD) {
			return already("osd.%d leads %s already", a.OSD, a.PG)
		}
		order := []int32{int32(a.OSD)}
		for _, osd := range up {
			if osd != int32(a.OSD) {
				order = append(order, osd)
			}
		}
		m.upmap[pg] = order
		c.pin(pg)
		return Effect{OK: true}
	}
	return c.moveReplica(a, pg, up)
}

func (c *Cluster) moveReplica(a Action, pg int32, up []int32) Effect {
	m := c.osdMap
	switch {
	case !c.hasOSD(a.Target) || !m.up[a.Target] || m.reweight[a.Target] == 0:
		return refused("osd.%d is not up and in: it can take no replica", a.Target)
	case !c.hasOSD(a.Source) || !slices.Contains(up, int32(a.Source)):
		return refused("osd.%d holds no replica of %s (%s)", a.Source, a.PG, show(up))
	case slices.Contains(up, int32(a.Target)):
		return refused("osd.%d holds a replica of %s already", a.Target, a.PG)
	}
	order := slices.Clone(up)
	order[slices.Index(order, int32(a.Source))] = int32(a.Target)
	m.upmap[pg] = order
	c.pin(pg)
	bytes := float64(c.pgs[pg].bytes)
	return Effect{OK: true, Detail: map[string]float64{"bytes_moved": bytes}}
}

// setUpmapPrimary sets or removes a PG's pg-upmap-primary, and refuses as the monitor does.
func (c *Cluster) setUpmapPrimary(a Action) Effect {
	pg, there := c.pgNumberOf(a.PG)
	if !there {
		return refused("there is no placement group %s", a.PG)
	}
	m := c.osdMap
	if a.Action == "ClearUpmapPrimary" {
		if _, there := m.leads[pg]; !there {
			return already("%s has no pg-upmap-primary", a.PG)
		}
		delete(m.leads, pg)
		c.pin(pg)
		return Effect{OK: true}
	}
	up := m.of(pg)
	switch {
	case !c.hasOSD(a.OSD) || !slices.Contains(up, int32(a.OSD)):
		return refused("osd.%d holds no replica of %s (%s)", a.OSD, a.PG, show(up))
	case up[0] == int32(a.OSD):
		return already("osd.%d leads %s already", a.OSD, a.PG)
	}
	m.leads[pg] = int32(a.OSD)
	c.pin(pg)
	return Effect{OK: true}
}

// setOption changes an option in the configuration database. OSDs use an mClock profile at once;
// clients that start later read it.
func (c *Cluster) setOption(a Action) Effect {
	right := false
	switch a.Option {
	case optionProfile:
		_, right = mclockProfiles[a.Setting]
		right = right && c.mclock()
	case optionPolicy:
		right = slices.Contains(readPolicies, a.Setting)
	case optionLocation:
		_, right = locationOf(a.Setting)
	}
	if !right {
		return refused("%s cannot be set to %q", a.Option, a.Setting)
	}
	c.monitor.options[a.Option] = a.Setting
	if a.Option == optionProfile {
		c.setProfile(a.Setting)
	}
	return Effect{OK: true, already: true}
}

func show(osds []int32) string {
	words := make([]string, len(osds))
	for i, osd := range osds {
		words[i] = fmt.Sprintf("osd.%d", osd)
	}
	return strings.Join(words, ", ")
}

// putUpmap replaces a PG's upmaps with an upmap of either kind.
func (c *Cluster) putUpmap(a Action) Effect {
	pg, there := c.pgNumberOf(a.PG)
	if !there {
		return refused("there is no placement group %s", a.PG)
	}
	named := slices.Clone(a.OSDs)
	for _, item := range a.Items {
		named = append(named, item[:]...)
	}
	for _, osd := range named {
		if !c.hasOSD(int(osd)) {
			return refused("there is no osd.%d", osd)
		}
	}
	m := c.osdMap
	switch {
	case a.Action == "SetItems":
		m.items[pg] = slices.Clone(a.Items)
	case len(a.OSDs) == 0 || len(a.OSDs) > m.size:
		return refused("an upmap of %s has 1 to %d OSDs", a.PG, m.size)
	default:
		m.upmap[pg] = slices.Clone(a.OSDs)
	}
	c.pin(pg)
	return Effect{OK: true}
}

// checkLeaders reports swaps that a low affinity reversed.
func (c *Cluster) checkLeaders(actions []Action, effects []Effect) {
	for i, a := range actions {
		swap := a.Action == "SwapPrimary" || a.Action == "SetUpmapPrimary"
		if !swap || !effects[i].OK || effects[i].already {
			continue
		}
		pg, _ := c.pgNumberOf(a.PG)
		if up := c.osdMap.of(pg); len(up) == 0 || up[0] != int32(a.OSD) {
			effects[i].OK = false
			effects[i].Message = fmt.Sprintf(
				"%s is not led by osd.%d after the swap: its primary affinity is too low", a.PG, a.OSD)
		}
	}
}

// reweightByUtilization implements Ceph's reweight::by_utilization (mon/PGMap.cc), in the order of
// the OSDs' distances from the mean utilization. An OSD above oload percent of the mean gets a
// lower weight; an OSD below the mean with a weight below 1 gets a higher one. At most maxOSDs
// change, each by at most maxChange. Used space is raw, see reportedUsed.
func (c *Cluster) reweightByUtilization(a Action) Effect {
	if a.Oload <= 100 {
		return refused("oload is %d, it must be above 100", a.Oload)
	}
	none := map[string]float64{"weights_changed": 0, "bytes_moved": 0}
	type osdUse struct {
		id  int
		use float64
	}
	total := float64(c.cfg.storeSize())
	uses := make([]osdUse, len(c.osds))
	mean := 0.0
	for i, o := range c.osds {
		uses[i] = osdUse{i, float64(c.reportedUsed(o)) / total}
		mean += uses[i].use / float64(len(c.osds))
	}
	if used := mean * total; used < leastUsed {
		return refused("OSDs use %.0f bytes each, reweighting begins at %d", used, leastUsed)
	}
	slices.SortStableFunc(uses, func(x, y osdUse) int {
		dx, dy := math.Abs(x.use-mean), math.Abs(y.use-mean)
		switch {
		case dx > dy:
			return -1
		case dx < dy:
			return 1
		}
		return 0
	})
	step := uint32(a.MaxChange * inWeight)
	var words []string
	changed := 0
	weights := slices.Clone(c.osdMap.reweight)
	for _, u := range uses {
		weight := c.osdMap.reweight[u.id]
		if weight == 0 {
			continue
		}
		wanted := weight
		if u.use >= mean*float64(a.Oload)/100 {
			wanted = uint32(mean / u.use * float64(weight))
			if weight > step {
				wanted = max(wanted, weight-step)
			}
		} else if u.use <= mean {
			if u.use > 0 {
				wanted = min(uint32(min(mean/u.use*float64(weight), inWeight)), weight+step)
			}
			wanted = max(min(wanted, inWeight), weight)
		}
		if wanted == weight {
			continue
		}
		weights[u.id] = wanted
		changed++
		words = append(words, fmt.Sprintf("osd.%d %.4f to %.4f", u.id,
			float64(weight)/inWeight, float64(wanted)/inWeight))
		if a.MaxOSDs > 0 && changed >= a.MaxOSDs {
			break
		}
	}
	if changed == 0 {
		return Effect{OK: true, already: true, Message: "no change", Detail: none}
	}
	bytes := c.bytesMovedBy(weights)
	return Effect{OK: true, Message: strings.Join(words, ", "), Detail: map[string]float64{
		"weights_changed": float64(changed), "bytes_moved": bytes,
	}}
}

// bytesMovedBy sets the reweights and returns the number of bytes that get new members.
func (c *Cluster) bytesMovedBy(weights []uint32) float64 {
	m := c.osdMap
	before := slices.Clone(m.upSet)
	copy(m.reweight, weights)
	m.dirty = true
	m.compute()
	bytes := int64(0)
	for pg := range int32(c.cfg.PGs) {
		was := before[int(pg)*m.size : (int(pg)+1)*m.size]
		for _, osd := range m.of(pg) {
			if !slices.Contains(was, osd) {
				bytes += c.pgs[pg].bytes
			}
		}
	}
	copy(m.upSet, before) // the epoch with this change is still to come
	m.all = true
	return float64(bytes)
}

func (c *Cluster) onBalance(k *sim.Kernel, _ uint64) {
	k.After(sim.Seconds(c.cfg.BalancerEvery), sim.Func(c.onBalance), 0)
	// Ceph's balancer waits while more than 5 % of the PGs are misplaced.
	mode := c.monitor.balancer
	if mode == "none" || float64(c.mover.live) > 0.05*float64(c.cfg.PGs) {
		return
	}
	changes := 0
	if mode != "read" {
		changes += c.balance()
	}
	if mode != "upmap" {
		changes += c.evenPrimaries()
	}
	if changes > 0 {
		c.publish()
	}
}

// runReadBalancer evens out the primaries once, as `osdmaptool --read` does.
func (c *Cluster) runReadBalancer() Effect {
	changes := c.evenPrimaries()
	detail := map[string]float64{"primaries_changed": float64(changes)}
	return Effect{OK: true, already: changes == 0, Detail: detail}
}

// evenPrimaries adds pg-upmap-primaries until each OSD leads as many PGs as its share, and returns
// their number: Ceph's read balancer (OSDMap::balance_primaries). An OSD's share is in proportion to
// the PGs that it holds and to its primary affinity. It sees no load.
func (c *Cluster) evenPrimaries() int {
	m := c.osdMap
	sets := slices.Clone(m.upSet)
	set := func(pg int) []int32 { return trim(sets[pg*m.size : (pg+1)*m.size]) }
	// Single precision as in Ceph: whether a change evens anything is often a matter of rounding.
	wanted, excess := make([]float32, len(c.osds)), make([]float32, len(c.osds))
	for pg := range c.pgs {
		for i, osd := range set(pg) {
			wanted[osd]++
			if i == 0 {
				excess[osd]++
			}
		}
	}
	total := 0.0
	for osd := range wanted {
		share := float32(float32(m.affinity[osd]) / maxAffinity)
		wanted[osd] = float32(wanted[osd] / float32(m.size) * share)
		total += float64(wanted[osd])
	}
	if total == 0 {
		return 0
	}
	for osd := range wanted {
		wanted[osd] = float32(wanted[osd] * (float32(c.cfg.PGs) / float32(total)))
		excess[osd] -= wanted[osd]
	}
	changed := map[int]bool{}
	for again := true; again; {
		again = false
		for pg := range c.pgs {
			members, to := set(pg), 0
			for i, osd := range members {
				over, under := excess[members[0]], excess[osd]
				if over > 0 && under < 0 && over-under > 1 && wanted[osd] > 0 {
					to = i
				}
			}
			if to > 0 {
				excess[members[0]]--
				excess[members[to]]++
				members[0], members[to] = members[to], members[0]
				changed[pg], again = true, true
			}
		}
	}
	for pg := range c.pgs {
		if changed[pg] {
			m.leads[int32(pg)] = set(pg)[0]
			c.pin(int32(pg))
		}
	}
	return len(changed)
}

// balance adds upmap items that equalize the OSDs' numbers of PGs, like the balancer's upmap mode
// (OSDMap::calc_pg_upmaps). It moves PGs from the fullest OSD to the emptiest OSD that may take
// them. It stops when all OSDs are within the allowed deviation or at the maximum number of
// changes, and returns that number.
func (c *Cluster) balance() int {
	m := c.osdMap
	counts := make([]int, len(c.osds))
	byOSD := make([][]int32, len(c.osds))
	total, in := 0, 0
	for pg := range int32(c.cfg.PGs) {
		for _, osd := range m.of(pg) {
			counts[osd]++
			byOSD[osd] = append(byOSD[osd], pg)
			total++
		}
	}
	order := make([]int, 0, len(c.osds))
	for i := range c.osds {
		if m.up[i] && m.reweight[i] > 0 {
			in++
			order = append(order, i)
		}
	}
	if in == 0 {
		return 0
	}
	mean := float64(total) / float64(in)
	changes := 0
	for changes < c.cfg.BalancerMoves {
		slices.SortStableFunc(order, func(x, y int) int { return counts[x] - counts[y] })
		full, empty := order[len(order)-1], order[0]
		allowed := float64(c.cfg.BalancerDeviation)
		if float64(counts[full])-mean <= allowed && mean-float64(counts[empty]) <= allowed {
			break
		}
		pg, to := c.relief(full, order, counts, byOSD[full])
		if pg == none {
			break
		}
		m.items[pg] = append(m.items[pg], [2]int32{int32(full), to})
		c.pin(pg)
		counts[full]--
		counts[to]++
		byOSD[full] = slices.DeleteFunc(byOSD[full], func(other int32) bool { return other == pg })
		byOSD[to] = append(byOSD[to], pg)
		changes++
	}
	return changes
}

// relief finds a PG of an OSD, and the emptiest OSD that can take it.
func (c *Cluster) relief(full int, order, counts []int, pgs []int32) (int32, int32) {
	for _, to := range order {
		if counts[to]+1 >= counts[full] {
			break
		}
		for _, pg := range pgs {
			_, whole := c.osdMap.upmap[pg]
			if !whole && !slices.Contains(c.osdMap.of(pg), int32(to)) && !c.itemTo(pg, int32(to)) {
				return pg, int32(to)
			}
		}
	}
	return none, none
}

func (c *Cluster) itemTo(pg, to int32) bool {
	return slices.ContainsFunc(c.osdMap.items[pg], func(i [2]int32) bool { return i[1] == to })
}
