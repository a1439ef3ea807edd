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
	if told := line.tell(); told.Seconds != 1 || len(told.Bins) != mostBins {
		t.Fatalf("%d bins of %g s", len(told.Bins), told.Seconds)
	}
	line.add(mostBins*time.Second, 1, false)
	told := line.tell()
	if told.Seconds != 2 || len(told.Bins) != mostBins/2+1 ||
		told.Bins[3] != (Bin{Requests: 2, Misses: 1, Max: 7e-9}) {
		t.Errorf("%d bins of %g s, %+v", len(told.Bins), told.Seconds, told.Bins[3])
	}
}
