package faults

import (
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Flags of TestReplay, after -args.
var (
	replayed = flag.Int64("seed", -1, "seed of TestReplay")
	where    = flag.String("backend", string(files), "place of the agents' bytes in TestReplay: file or rados")
	broken   = flag.String("break", string(sound), "deliberate breakage of the protocol in TestReplay")
)

func TestReplay(t *testing.T) {
	if *replayed < 0 {
		t.Skip("runs one seed with all its events: -args -seed 4711")
	}
	trace := func(now time.Duration, line string) { fmt.Printf("%12v %s\n", now, line) }
	if found := run(backend(*where), uint64(*replayed), breakage(*broken), trace); found.err != nil {
		t.Error(found.err)
	}
}

// replay returns the command that reruns a seed with its trace.
func replay(on backend, seed uint64) string {
	return fmt.Sprintf("cd dataplane && ../tools/go test ./twochoice/faults -run Replay -args -seed %d -backend %s", seed, on)
}

// seeds is the number of runs in `go test`; `make soak` makes 20,000.
const seeds = 500

// keeps runs seeds on all processors, and reports the seeds that violate the promise.
func keeps(t *testing.T, on backend, n uint64) totals {
	t.Helper()
	var all totals
	var mu sync.Mutex
	var next atomic.Uint64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for seed := next.Add(1) - 1; seed < n; seed = next.Add(1) - 1 {
				found := run(on, seed, sound, nil)
				mu.Lock()
				if found.err != nil {
					t.Errorf("seed %d: %v\nreplay: %s", seed, found.err, replay(on, seed))
				}
				all.add(found)
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	t.Logf("%d seeds: %+v", n, all)
	return all
}

// happened checks that enough faults occurred: a simulation without faults would keep any promise.
func happened(t *testing.T, all totals, least int, names ...string) {
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
	happened(t, keeps(t, files, uint64(n)), n/50, "Acked", "Reads", "Crashes", "ClientCrashes", "GivenUp", "Redirected",
		"Returned", "Fenced", "Lost", "Doubled", "Torn", "Fulls", "Sicks", "Compactions", "Flipped", "Zeroed", "Dropped",
		"Misdirected", "Unreadable", "OfLogs", "OfBases", "OfFragments", "Repaired", "Missing", "Named")
}

// onPools is the number of additional runs on RADOS pools.
const onPools = 150

func TestThePromiseIsKeptOnPoolsOfRADOS(t *testing.T) {
	all := keeps(t, pools, onPools)
	happened(t, all, onPools/50, "Acked", "Reads", "Crashes", "Redirected", "Returned", "Fulls", "Sicks", "Compactions",
		"OfBases", "OfFragments", "Named")
	if all.Torn != 0 {
		t.Errorf("%d logs were torn, where an operation is done wholly or not at all", all.Torn)
	}
}

// worst limits the seeds for finding any breakage of the protocol; 18 suffice now.
const worst = 100

func TestEveryBreakageOfTheProtocolIsFound(t *testing.T) {
	found := func(on backend, b breakage) {
		for seed := range uint64(worst) {
			if one := run(on, seed, b, nil); one.err != nil {
				t.Logf("%v on %v: seed %d: %v", b, on, seed, one.err)
				return
			}
		}
		t.Errorf("%v on %v was not found in %d seeds", b, on, worst)
	}
	for _, b := range breakages {
		found(files, b)
	}
	for _, b := range []breakage{ackBeforeSync, ackBeforeFragment, forgetRecords} {
		found(pools, b)
	}
}

// Two runs of a seed are equal to the last message.
func TestASeedReplaysExactly(t *testing.T) {
	digest := func(seed uint64) (uint64, result) {
		hash := fnv.New64a()
		found := run(files, seed, sound, func(now time.Duration, line string) { fmt.Fprintln(hash, now, line) })
		return hash.Sum64(), found
	}
	for seed := range uint64(8) {
		first, a := digest(seed)
		second, b := digest(seed)
		if first != second || a != b {
			t.Errorf("seed %d was two runs: %+v and %+v", seed, a, b)
		}
		if untraced := run(files, seed, sound, nil); untraced != a {
			t.Errorf("seed %d is another run when it is not traced: %+v", seed, untraced)
		}
	}
}
