package twochoice

import (
	"slices"
	"time"
)

const (
	levelsKept = 64 // numbers of operations in flight that are told apart
	latestKept = 8  // latencies of each
)

// latencies are the latest at each number of operations in flight (Prequal's expected latency).
type latencies struct {
	latest [levelsKept][latestKept]time.Duration
	count  [levelsKept]uint32
}

func (l *latencies) add(inFlight int, took time.Duration) {
	level := min(max(inFlight, 0), levelsKept-1)
	l.latest[level][l.count[level]%latestKept] = took
	l.count[level]++
}

// expect is the median of the latest latencies at a number of operations in flight, or at the nearest
// number that has any; 0 when there are none.
func (l *latencies) expect(inFlight int) time.Duration {
	level := min(max(inFlight, 0), levelsKept-1)
	for apart := range levelsKept {
		for _, near := range [2]int{level - apart, level + apart} {
			if near < 0 || near >= levelsKept || l.count[near] == 0 {
				continue
			}
			some := l.latest[near]
			kept := some[:min(l.count[near], latestKept)]
			slices.Sort(kept)
			return kept[len(kept)/2]
		}
	}
	return 0
}
