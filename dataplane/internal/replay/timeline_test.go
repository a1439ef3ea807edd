package replay

import (
	"testing"
	"time"
)

func TestTimelinesGetWider(t *testing.T) {
	line := newTimeline()
	for second := range mostBins {
		line.add(time.Duration(second)*time.Second, time.Duration(second), second%2 == 0)
	}
	if reported := line.report(); reported.Seconds != 1 || len(reported.Bins) != mostBins {
		t.Fatalf("%d bins of %g s", len(reported.Bins), reported.Seconds)
	}
	line.add(mostBins*time.Second, 1, false)
	reported := line.report()
	if reported.Seconds != 2 || len(reported.Bins) != mostBins/2+1 ||
		reported.Bins[3] != (Bin{Requests: 2, Misses: 1, Max: 7e-9}) {
		t.Errorf("%d bins of %g s, %+v", len(reported.Bins), reported.Seconds, reported.Bins[3])
	}
}
