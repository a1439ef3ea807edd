package ceph

import (
	"fmt"
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
	balancing bool

	watched   int     // PGs of the last step that do not yet serve
	watching  []int32 // all PGs of the last step
	watchFrom time.Duration
	stall     time.Duration
	stalled   bool
	told      bool // the stall was reported with an effect
}

func (m *monitor) init(c *Cluster) {
	m.told = true
	c.k.After(sim.Seconds(c.cfg.BalancerEvery), (*onBalance)(c), 0)
}

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
			c.monitor.told = false
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
			c.monitor.told = true
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
		case "SwapPrimary", "MoveReplica", "ClearUpmap":
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
	if m.told {
		return -1
	}
	c.until(c.k.Now()+stallLimit, func() bool { return m.watched == 0 })
	m.told = true
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
	case "SetBalancer":
		if a.Mode != "upmap" && a.Mode != "none" {
			return refused("balancer mode %q is not upmap or none", a.Mode)
		}
		c.monitor.balancing = a.Mode == "upmap"
		return Effect{OK: true, already: true}
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
		if !c.hasOSD(a.OSD) || !contains(up, int32(a.OSD)) {
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
	case !c.hasOSD(a.Source) || !contains(up, int32(a.Source)):
		return refused("osd.%d holds no replica of %s (%s)", a.Source, a.PG, show(up))
	case contains(up, int32(a.Target)):
		return refused("osd.%d holds a replica of %s already", a.Target, a.PG)
	}
	order := slices.Clone(up)
	order[slices.Index(order, int32(a.Source))] = int32(a.Target)
	m.upmap[pg] = order
	c.pin(pg)
	bytes := float64(c.pgs[pg].bytes)
	return Effect{OK: true, Detail: map[string]float64{"bytes_moved": bytes}}
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
		if a.Action != "SwapPrimary" || !effects[i].OK || effects[i].already {
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
