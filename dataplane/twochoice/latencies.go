package twochoice

import (
	"slices"
	"time"
)

const (
	levelsKept = 64 // distinct numbers of operations in flight
	latestKept = 8  // latencies kept for each number
)

// latencies holds the latest latencies at each number of operations in flight, for Prequal.
type latencies struct {
	latest [levelsKept][latestKept]time.Duration
	count  [levelsKept]uint32
}

func (l *latencies) add(inFlight int, took time.Duration) {
	level := min(max(inFlight, 0), levelsKept-1)
	l.latest[level][l.count[level]%latestKept] = took
	l.count[level]++
}

// expect returns the median of the latest latencies at the given number of operations in flight, or
// at the nearest number with latencies. It returns 0 if there are none.
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
