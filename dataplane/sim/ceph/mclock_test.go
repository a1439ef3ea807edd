package ceph

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"hotbed/dataplane/sim"
	"hotbed/dataplane/tests/must"
)

// oracle is dmclock transcribed on its own: one list of all requests, each with its tags, of which
// every step sorts the candidates. Shares and costs in its tests are powers of two, so that sums in
// another order have the same bits.
type oracle struct {
	shares   [3]share
	requests []*wish
	before   [3][3]float64 // by class: R, P and L of the last request with tags
	delta    [3]float64
	seen     [3]float64
}

type wish struct {
	id            ref
	class         int
	cost, arrived float64
	tags          []float64 // R, P, L
}

func newOracle(shares [3]share) *oracle {
	o := &oracle{shares: shares}
	for i := range o.before {
		o.seen[i] = math.Inf(-1)
		for j := range o.before[i] {
			o.before[i][j] = math.Inf(-1)
		}
	}
	return o
}

func (o *oracle) first(class int) *wish {
	for _, w := range o.requests {
		if w.class == class {
			return w
		}
	}
	return nil
}

func (o *oracle) add(t float64, class int, cost float64, id ref) {
	waits := o.first(class) != nil
	if !waits && t-o.seen[class] > 600 {
		least := math.Inf(1)
		for other := range o.shares {
			if other != class && (o.first(other) != nil || t-o.seen[other] <= 600) {
				least = math.Min(least, o.before[other][1]+o.delta[other])
			}
		}
		if !math.IsInf(least, 1) {
			o.delta[class] = least - t
		}
	}
	o.seen[class] = t
	o.requests = append(o.requests, &wish{id: id, class: class, cost: cost, arrived: t})
	o.label(class)
}

// label gives the first request of a class its tags.
func (o *oracle) label(class int) {
	w := o.first(class)
	if w == nil || w.tags != nil {
		return
	}
	rates := []float64{o.shares[class].reservation, o.shares[class].weight, o.shares[class].limit}
	unused := []float64{math.Inf(1), math.Inf(1), math.Inf(-1)}
	for i, rate := range rates {
		if rate == 0 {
			w.tags = append(w.tags, unused[i])
			continue
		}
		o.before[class][i] = math.Max(w.arrived, o.before[class][i]+w.cost/rate)
		w.tags = append(w.tags, o.before[class][i])
	}
}

func (o *oracle) pull(t float64) (ref, float64) {
	var due, within []*wish
	wake := math.Inf(1)
	for class := range o.shares {
		w := o.first(class)
		if w == nil {
			continue
		}
		wake = math.Min(wake, math.Min(w.tags[0], w.tags[2]))
		if w.tags[0] <= t {
			due = append(due, w)
		}
		if w.tags[2] <= t {
			within = append(within, w)
		}
	}
	slices.SortStableFunc(due, func(a, b *wish) int { return cmp.Compare(a.tags[0], b.tags[0]) })
	slices.SortStableFunc(within, func(a, b *wish) int {
		return cmp.Compare(a.tags[1]+o.delta[a.class], b.tags[1]+o.delta[b.class])
	})
	if len(due)+len(within) == 0 {
		return 0, wake
	}
	w := append(due, within...)[0]
	o.requests = slices.DeleteFunc(o.requests, func(x *wish) bool { return x == w })
	o.label(w.class)
	if reservation := o.shares[w.class].reservation; len(due) == 0 && reservation > 0 {
		o.before[w.class][0] -= w.cost / reservation
		if next := o.first(w.class); next != nil {
			next.tags[0] -= w.cost / reservation
		}
	}
	return w.id, t
}

// clockOf returns a queue with these shares, in bytes per second.
func clockOf(shares [3]share) *dmclock {
	config := testConfig()
	config.OpQueue, config.MClockBandwidth, config.MClockIOPS = "mclock_scheduler", 1, 1
	m := newDmclock(&config, "balanced")
	for i := range m.classes {
		m.classes[i].share = shares[i]
	}
	return m
}

func FuzzMClockIsItsTranscription(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := sim.NewStream(seed, "mclock")
		power := func(least, most int64) float64 {
			return math.Ldexp(1, int(least+random.IntN(most-least+1)))
		}
		var shares [3]share
		for i := range shares {
			shares[i] = share{weight: power(0, 2)}
			if random.Bernoulli(0.6) {
				shares[i].reservation = power(4, 8)
			}
			if random.Bernoulli(0.4) {
				shares[i].limit = power(4, 8)
			}
		}
		m, o := clockOf(shares), newOracle(shares)
		now, id := 1024., ref(0)
		for range 2000 {
			now += float64(random.IntN(64)) / 32
			if random.Bernoulli(0.001) {
				now += 700
			}
			for range random.IntN(3) {
				id++
				class, cost := int(random.IntN(3)), power(2, 7)
				m.add(now, class, int64(cost), id)
				o.add(now, class, cost, id)
			}
			for range random.IntN(3) {
				found, wake := m.next(now)
				want, at := o.pull(now + nanosecond)
				if found != want || found == 0 && wake != at {
					t.Fatalf("at %g request %d, wake %g; the transcription has %d, %g", now, found, wake, want, at)
				}
			}
			if m.len() != len(o.requests) {
				t.Fatalf("%d wait, in the transcription %d", m.len(), len(o.requests))
			}
		}
	})
}

// bytesServed lets a server of `rate` bytes per second take requests from a queue, in which the busy
// classes have enough from the beginning, and returns the bytes that each gets per second.
func bytesServed(m *dmclock, random *sim.Stream, busy [3]bool, rate float64) (got [3]float64, idle float64) {
	const seconds = 400.
	now, id := 0., ref(0)
	class, cost := map[ref]int{}, map[ref]int64{}
	for i := range m.classes {
		for waits := 0.; busy[i] && waits < 2*seconds*rate; waits += float64(cost[id]) {
			id++
			class[id], cost[id] = i, 1+random.IntN(20)
			m.add(now, i, cost[id], id)
		}
	}
	for now < seconds {
		r, wake := m.next(now)
		if r == 0 {
			idle += wake - now
			now = wake
			continue
		}
		got[class[r]] += float64(cost[r]) / seconds
		now += float64(cost[r]) / rate
	}
	return got, idle / seconds
}

func TestMClockKeepsItsPromises(t *testing.T) {
	const rate = 100.
	for seed := range uint64(60) {
		random := sim.NewStream(seed, "promises")
		var shares [3]share
		var busy [3]bool
		left := rate
		for i := range shares {
			shares[i] = share{weight: 1 + float64(random.IntN(4))}
			if random.Bernoulli(0.5) {
				shares[i].reservation = left * random.Uniform()
				left -= shares[i].reservation
			}
			if random.Bernoulli(0.3) {
				shares[i].limit = shares[i].reservation + 10 + 30*random.Uniform()
			}
			busy[i] = random.Bernoulli(0.8)
		}
		got, idle := bytesServed(clockOf(shares), random, busy, rate)
		sum := 0.
		for i, s := range shares {
			sum += got[i]
			if !busy[i] {
				continue
			}
			if got[i] < s.reservation-0.5 {
				t.Errorf("seed %d: class %d gets %.2f of the reserved %.2f", seed, i, got[i], s.reservation)
			}
			if s.limit > 0 && got[i] > s.limit+0.5 {
				t.Errorf("seed %d: class %d gets %.2f, the limit is %.2f", seed, i, got[i], s.limit)
			}
			if idle > 0.01 && (s.limit == 0 || got[i] < s.limit-0.5) {
				t.Errorf("seed %d: the server is idle for %.3f, and class %d gets %.2f of %+v", seed, idle, i,
					got[i], s)
			}
		}
		if any := busy[0] || busy[1] || busy[2]; any && math.Abs(sum-rate*(1-idle)) > 0.5 {
			t.Errorf("seed %d: %.2f of %.0f are served", seed, sum, rate)
		}
	}
}

func TestMClockSharesByWeight(t *testing.T) {
	for _, weights := range [][3]float64{{1, 1, 1}, {2, 1, 1}, {4, 2, 1}, {3, 7, 5}} {
		shares := [3]share{{0, weights[0], 0}, {0, weights[1], 0}, {0, weights[2], 0}}
		got, idle := bytesServed(clockOf(shares), sim.NewStream(1, "weights"), [3]bool{true, true, true}, 100)
		for i, w := range weights {
			if want := 100 * w / (weights[0] + weights[1] + weights[2]); math.Abs(got[i]-want) > 0.5 || idle > 0 {
				t.Errorf("%v: class %d gets %.2f of 100, wanted %.2f; idle %.3f", weights, i, got[i], want, idle)
			}
		}
	}
}

func TestWritesOfReplicasGoFirst(t *testing.T) {
	m := clockOf([3]share{{10, 1, 0}, {10, 1, 0}, {0, 1, 10}})
	for i := range 3 {
		m.add(0, i, 1, ref(i+1))
	}
	m.immediate.push(9)
	m.immediate.push(8)
	var order []ref
	for range 5 {
		r, _ := m.next(10)
		order = append(order, r)
	}
	if !slices.Equal(order, []ref{9, 8, 1, 2, 3}) {
		t.Errorf("%v", order)
	}
}

// clocked returns a cluster that schedules by mClock.
func clocked(profile string) Config {
	config := testConfig()
	config.OpQueue, config.MClockProfile = "mclock_scheduler", profile
	config.MClockBandwidth, config.MClockIOPS = 150<<20, 315
	return config
}

// fio is not an operation of the OSD: its reads wait at the disk, behind mClock's queue.
func TestMClockDoesNotHelpAgainstDisturbanceFromOutside(t *testing.T) {
	run := func(config Config) (int64, time.Duration) {
		c := build(t, config, 400)
		for _, node := range []int{1, 3, 4, 6} {
			c.SetLoad(node, true, 0)
		}
		start(t, c, "rand", 16, 30)
		b := finish(t, c, time.Minute)
		atRest(t, c)
		return b.finished, b.total.Sum()
	}
	reads, latency := run(testConfig())
	for profile := range mclockProfiles {
		if found, sum := run(clocked(profile)); found != reads || sum != latency {
			t.Errorf("%s: %d reads in %v, without mClock %d in %v", profile, found, sum, reads, latency)
		}
	}
}

// An OSD is lost and its data copied while clients read: the profile decides who waits.
func TestProfilesWeighClientsAgainstRecovery(t *testing.T) {
	run := func(profile string) (reads, copied int64) {
		config := clocked(profile)
		config.OutAfter, config.MaxBackfills, config.RecoverActive = 1, 8, 8
		config.Shards, config.Threads, config.OpTime = 1, 1, 0.02 // the OSD is the bottleneck,
		config.MClockBandwidth, config.MClockIOPS = 60e6, 15      // with this capacity
		c := build(t, config, 3000)
		start(t, c, "rand", 64, 60)
		must.Succeed(t, c.Break(Fault{Kind: "crash", OSD: 2}))
		c.until(10*time.Second, func() bool { return c.mover.live > 0 })
		sum := func() (reads, stored int64) {
			for _, o := range c.osds {
				reads += o.reads
				stored += o.disk.Stats(c.k).BytesWritten
			}
			return reads, stored
		}
		reads, copied = sum()
		c.Advance(c.k.Now() + 20*time.Second)
		now, stored := sum()
		if c.mover.live == 0 {
			t.Fatal("the copying has ended")
		}
		finish(t, c, time.Hour)
		c.until(c.k.Now()+time.Hour, func() bool { return c.mover.live == 0 })
		atRest(t, c)
		return now - reads, stored - copied
	}
	clients, slow := run("high_client_ops")
	even, middle := run("balanced")
	recovery, fast := run("high_recovery_ops")
	if !(slow < middle && middle < fast) || !(clients > even && even > recovery) {
		t.Errorf("%d, %d and %d reads, %d, %d and %d bytes copied", clients, even, recovery, slow, middle, fast)
	}
}

func TestAProfileIsChangedWhileOSDsRun(t *testing.T) {
	c := build(t, clocked("balanced"), 100)
	option(t, c, optionProfile, "high_recovery_ops")
	want := share{0.7 * (150 << 20) / 2, 2, 0}
	if found := c.osds[5].shards[1].mclock.classes[classRecovery].share; found != want {
		t.Errorf("%+v", found)
	}
	must.Succeed(t, c.Break(Fault{Kind: "crash", OSD: 5}))
	must.Succeed(t, c.Break(Fault{Kind: "restart", OSD: 5}))
	if found := c.osds[5].shards[1].mclock.classes[classRecovery].share; found != want {
		t.Errorf("after a restart %+v", found)
	}
	for _, a := range []Action{
		{Option: optionProfile, Setting: "fast"}, {Option: "osd_op_queue", Setting: "wpq"},
		{Option: optionPolicy, Setting: "primary"}, {Option: optionLocation, Setting: "host"},
	} {
		a.Action = "SetOption"
		if e := c.Act([]Action{a})[0]; e.OK || e.Message == "" {
			t.Errorf("%+v: %+v", a, e)
		}
	}
	plain := build(t, testConfig(), 0)
	if e := plain.Act([]Action{{Action: "SetOption", Option: optionProfile, Setting: "balanced"}})[0]; e.OK {
		t.Error("an OSD without mClock takes a profile")
	}
}
