package service

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func disk() Model {
	return Model{PositioningMean: 4 * time.Millisecond, Bandwidth: 60e6, Size: 12 << 30}
}

func TestPositioningGrowsWithDistanceAndIsSymmetric(t *testing.T) {
	m := disk()
	last := time.Duration(0)
	for d := int64(512); d <= m.Size; d *= 2 {
		p := m.Positioning(0, d)
		if p <= last {
			t.Fatalf("positioning(%d) = %v, not above %v", d, p, last)
		}
		if back := m.Positioning(d, 0); back != p {
			t.Fatalf("positioning back %v, there %v", back, p)
		}
		last = p
	}
	least := time.Duration(SettleShare * float64(m.PositioningMean))
	if near := m.Positioning(0, 1); near < least {
		t.Errorf("the shortest seek takes %v, less than the settling share %v", near, least)
	}
}

func TestMeanPositioningIsTheStatedOne(t *testing.T) {
	for _, mean := range []time.Duration{100 * time.Microsecond, 4 * time.Millisecond, time.Second} {
		m := disk()
		m.PositioningMean = mean
		rng := rand.New(rand.NewPCG(1, 2))
		const n = 400000
		var sum, squares float64
		for range n {
			p := m.Positioning(rng.Int64N(m.Size), rng.Int64N(m.Size)).Seconds()
			sum += p
			squares += p * p
		}
		stated, second := m.RandomMoments(0)
		if stated != mean.Seconds() {
			t.Errorf("RandomMoments mean %g, stated %g", stated, mean.Seconds())
		}
		if e := sum/n/stated - 1; math.Abs(e) > 0.002 {
			t.Errorf("mean positioning is %+.3f %% off the stated %v", 100*e, mean)
		}
		if e := squares/n/second - 1; math.Abs(e) > 0.004 {
			t.Errorf("second moment is %+.3f %% off", 100*e)
		}
	}
}
