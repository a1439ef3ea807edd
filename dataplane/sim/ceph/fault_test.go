package ceph

import (
	"math"
	"testing"
	"time"

	"hotbed/dataplane/tests/must"
)

func TestASlowDiskShowsAndIsMended(t *testing.T) {
	c := build(t, testConfig(), 400)
	start(t, c, "rand", 8, 300)
	o := c.osds[2]
	mean := func() float64 { // of reads at osd.2 in the next 60 s
		reads, took := o.reads, o.readTime
		c.Advance(c.k.Now() + time.Minute)
		return (o.readTime - took).Seconds() / float64(o.reads-reads)
	}
	healthy := mean()
	must.Succeed(t, c.Break(Fault{Kind: "slow", OSD: 2, Factor: 6}))
	slow := mean()
	must.Succeed(t, c.Break(Fault{Kind: "slow", OSD: 2, Factor: 1}))
	c.Advance(c.k.Now() + 10*time.Second)
	mended := mean()
	if slow < 4*healthy || mended > 1.5*healthy {
		t.Errorf("a read takes %.3f s, on a disk six times slower %.3f, then %.3f", healthy, slow, mended)
	}
	finish(t, c, 10*time.Minute)
	atRest(t, c)
}

func TestWhoIsCutOffIsWaitedFor(t *testing.T) {
	for _, op := range []string{"rand", "write"} {
		c := build(t, testConfig(), 400)
		start(t, c, op, 16, 120)
		c.Advance(10 * time.Second)
		must.Succeed(t, c.Break(Fault{Kind: "cut", OSD: 3}))
		// The loop is closed: each of its operations finally waits for osd.3.
		c.Advance(60 * time.Second)
		stuck := c.bench.finished
		c.Advance(100 * time.Second)
		if c.bench.finished != stuck || c.bench.flight != 16 {
			t.Errorf("%s: %d operations ended, %d are in flight", op, c.bench.finished-stuck,
				c.bench.flight)
		}
		must.Succeed(t, c.Break(Fault{Kind: "heal", OSD: 3}))
		c.Advance(c.k.Now() + 10*time.Second)
		if c.bench.finished < stuck+16 {
			t.Errorf("%s: %d operations ended after the partition", op, c.bench.finished-stuck)
		}
		finish(t, c, 10*time.Minute)
		atRest(t, c)
	}
}

func TestADelayIsThatOfEveryAnswer(t *testing.T) {
	const more = 0.25
	mean := func(delayed bool) float64 {
		c := build(t, testConfig(), 100)
		for i := range c.osds {
			if delayed {
				must.Succeed(t, c.Break(Fault{Kind: "delay", OSD: i, Seconds: more}))
			}
		}
		start(t, c, "rand", 1, 60)
		r := finish(t, c, 10*time.Minute)
		atRest(t, c)
		return r.total.Mean()
	}
	if found := mean(true) - mean(false); math.Abs(found-more) > 0.01 {
		t.Errorf("answers that are delayed by %g s come %.3f s later", more, found)
	}
}

func TestBadFaultsOfANodeAreNamed(t *testing.T) {
	c := build(t, testConfig(), 0)
	for _, test := range []struct {
		fault Fault
		says  string
	}{
		{Fault{Kind: "crash", OSD: 8}, "there is no osd.8"},
		{Fault{Kind: "crash", OSD: -1}, "there is no osd.-1"},
		{Fault{Kind: "explode"}, `there is no fault "explode"`},
		{Fault{Kind: "slow"}, "factor is 0"},
		{Fault{Kind: "slow", Factor: -2}, "factor is -2"},
		{Fault{Kind: "slow", Factor: math.NaN()}, "factor is NaN"},
		{Fault{Kind: "slow", Factor: math.Inf(1)}, "factor is +Inf"},
		{Fault{Kind: "delay", Seconds: -1}, "seconds is -1"},
		{Fault{Kind: "delay", Seconds: math.NaN()}, "seconds is NaN"},
		{Fault{Kind: "delay", Seconds: 1e9}, "seconds is 1e+09"},
	} {
		err := c.Break(test.fault)
		must.Refuse(t, err, test.says)
	}
	c.Advance(time.Minute)
	atRest(t, c)
}
