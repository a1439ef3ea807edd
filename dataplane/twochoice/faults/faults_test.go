package faults

import (
	"fmt"
	"hash/fnv"
	"testing"
	"time"

	"hotbed/dataplane/twochoice/protocol"
)

// seeds is how many runs every test of everything makes; `make bench` makes 10,000.
const seeds = 500

func TestThePromiseIsKeptUnderFaults(t *testing.T) {
	var all Totals
	for seed := range uint64(seeds) {
		result := Run(seed, protocol.Sound, nil)
		if result.Err != nil {
			t.Errorf("seed %d: %v\nreplay: %s", seed, result.Err, Replay(seed, protocol.Sound))
		}
		all.Add(result)
	}
	// A simulation in which nothing happens would keep any promise.
	for what, n := range map[string]int{"acknowledged writes": all.Acked, "reads": all.Reads, "crashes": all.Crashes,
		"crashes of clients": all.ClientCrashes, "operations given up": all.GivenUp, "redirected writes": all.Redirected, "returns": all.Returned,
		"fences": all.Fenced, "lost messages": all.Lost, "doubled messages": all.Doubled, "torn logs": all.Torn,
		"full disks": all.Fulls, "failed syncs": all.Sicks, "compactions": all.Compactions,
		"spoilt fragments": all.Rotten, "unreadable fragments": all.Unreadable, "missing fragments": all.Missing} {
		if n < seeds/50 {
			t.Errorf("there were only %d %s", n, what)
		}
	}
	t.Logf("%+v", all)
}

// A disk that hung when faults ended is not yet well: in this seed a write's patience ended first.
func TestWhatHungAmongFaultsIsWaitedFor(t *testing.T) {
	if result := Run(9180, protocol.Sound, nil); result.Err != nil {
		t.Error(result.Err)
	}
}

// onPools is how many runs are made on pools of RADOS besides.
const onPools = 150

func TestThePromiseIsKeptOnPoolsOfRADOS(t *testing.T) {
	var all Totals
	for seed := range uint64(onPools) {
		result := RunOn(Pools, seed, protocol.Sound, nil)
		if result.Err != nil {
			t.Errorf("seed %d: %v\nreplay: %s", seed, result.Err, ReplayOn(Pools, seed, protocol.Sound))
		}
		all.Add(result)
	}
	for what, n := range map[string]int{"acknowledged writes": all.Acked, "reads": all.Reads, "crashes": all.Crashes,
		"redirected writes": all.Redirected, "returns": all.Returned, "full disks": all.Fulls,
		"failed operations": all.Sicks, "compactions": all.Compactions} {
		if n < onPools/50 {
			t.Errorf("there were only %d %s", n, what)
		}
	}
	if all.Torn != 0 {
		t.Errorf("%d logs were torn, where an operation is done wholly or not at all", all.Torn)
	}
	t.Logf("%+v", all)
}

// worst is how many seeds it may take to find any breakage of the protocol; it takes 18 at most.
const worst = 100

func TestEveryBreakageOfTheProtocolIsFound(t *testing.T) {
	for _, b := range protocol.Breaks() {
		caught := false
		for seed := uint64(0); seed < worst && !caught; seed++ {
			if result := Run(seed, b, nil); result.Err != nil {
				caught = true
				t.Logf("%v: seed %d: %v", b, seed, result.Err)
			}
		}
		if !caught {
			t.Errorf("%v was not found in %d seeds", b, worst)
		}
	}
}

func TestBreakagesAreFoundOnPoolsToo(t *testing.T) {
	for _, b := range []protocol.Break{protocol.AckBeforeSync, protocol.AckBeforeFragment, protocol.DropEarly} {
		caught := false
		for seed := uint64(0); seed < worst && !caught; seed++ {
			caught = RunOn(Pools, seed, b, nil).Err != nil
		}
		if !caught {
			t.Errorf("%v was not found in %d seeds", b, worst)
		}
	}
}

// Two runs of a seed are the same to the last message.
func TestASeedReplaysExactly(t *testing.T) {
	digest := func(seed uint64) (uint64, Result) {
		hash := fnv.New64a()
		result := Run(seed, protocol.Sound, func(now time.Duration, line string) { fmt.Fprintln(hash, now, line) })
		return hash.Sum64(), result
	}
	for seed := range uint64(8) {
		first, a := digest(seed)
		second, b := digest(seed)
		if first != second || a != b {
			t.Errorf("seed %d was two runs: %+v and %+v", seed, a, b)
		}
		if untraced := Run(seed, protocol.Sound, nil); untraced != a {
			t.Errorf("seed %d is another run when it is not traced: %+v", seed, untraced)
		}
	}
}
