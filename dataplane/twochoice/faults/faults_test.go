package faults

import (
	"fmt"
	"hash/fnv"
	"os"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hotbed/dataplane/twochoice/protocol"
)

// seeds is the number of runs per test; `make bench` makes 10,000, `make soak` 20,000.
const seeds = 500

// keeps runs seeds on all processors, and reports the seeds that violate the promise.
func keeps(t *testing.T, backend Backend, n uint64) Totals {
	t.Helper()
	var all Totals
	var mu sync.Mutex
	var next atomic.Uint64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for seed := next.Add(1) - 1; seed < n; seed = next.Add(1) - 1 {
				result := RunOn(backend, seed, protocol.Sound, nil)
				mu.Lock()
				if result.Err != nil {
					t.Errorf("seed %d: %v\nreplay: %s", seed, result.Err, ReplayOn(backend, seed, protocol.Sound))
				}
				all.Add(result)
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	t.Logf("%d seeds: %+v", n, all)
	return all
}

// happened checks that enough faults occurred: a simulation without faults would keep any promise.
func happened(t *testing.T, all Totals, least int, names ...string) {
	t.Helper()
	counts := reflect.ValueOf(all)
	for _, name := range names {
		if n := counts.FieldByName(name).Int(); n < int64(least) {
			t.Errorf("%s is only %d", name, n)
		}
	}
}

func TestThePromiseIsKeptUnderFaults(t *testing.T) { underFaults(t, seeds) }

func TestSoakThePromiseIsKeptUnderFaults(t *testing.T) {
	if os.Getenv("HOTBED_SOAK") == "" {
		t.Skip("20,000 seeds are for `make soak`")
	}
	underFaults(t, 20_000)
}

func underFaults(t *testing.T, n int) {
	t.Helper()
	happened(t, keeps(t, Files, uint64(n)), n/50, "Acked", "Reads", "Crashes", "ClientCrashes", "GivenUp", "Redirected",
		"Returned", "Fenced", "Lost", "Doubled", "Torn", "Fulls", "Sicks", "Compactions", "Flipped", "Zeroed", "Dropped",
		"Misdirected", "Unreadable", "OfLogs", "OfBases", "OfFragments", "Repaired", "Missing", "Named")
}

// A disk that hung when faults ended is not yet well: in this seed a write's patience ended first.
func TestWhatHungAmongFaultsIsWaitedFor(t *testing.T) {
	if result := Run(9180, protocol.Sound, nil); result.Err != nil {
		t.Error(result.Err)
	}
}

// onPools is the number of additional runs on RADOS pools.
const onPools = 150

func TestThePromiseIsKeptOnPoolsOfRADOS(t *testing.T) {
	all := keeps(t, Pools, onPools)
	happened(t, all, onPools/50, "Acked", "Reads", "Crashes", "Redirected", "Returned", "Fulls", "Sicks", "Compactions",
		"OfBases", "OfFragments", "Named")
	if all.Torn != 0 {
		t.Errorf("%d logs were torn, where an operation is done wholly or not at all", all.Torn)
	}
}

// worst limits the seeds for finding any breakage of the protocol; 18 suffice now.
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

// Two runs of a seed are equal to the last message.
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
