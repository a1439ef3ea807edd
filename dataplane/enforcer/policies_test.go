package enforcer

import (
	"testing"
	"time"
)

// halfDevice is a bucket that leaks half a device and holds 20 ms.
var halfDevice = [2]float64{0.5, 0.02}

// at returns requests of 10 ms of a workload at these milliseconds.
func at(workload int, millis ...int) (jobs []job) {
	for _, m := range millis {
		jobs = append(jobs, job{workload, time.Duration(m) * ms, 0.01})
	}
	return jobs
}

func all(parts ...[]job) (jobs []job) {
	for _, part := range parts {
		jobs = append(jobs, part...)
	}
	return jobs
}

// TestPolicies checks the order of dispatch, or the times (ms) by job, in worked examples.
func TestPolicies(t *testing.T) {
	slos := []Workload{{Name: "slow", SLO: Span(100 * ms)}, {Name: "fast", SLO: Span(30 * ms)}, {Name: "copy"}}
	two := []Workload{{Name: "a"}, {Name: "b"}}
	one := func(pairs ...[2]float64) []Workload { return []Workload{{Name: "a", Pairs: pairs}} }
	for name, c := range map[string]struct {
		Parameters
		jobs  []job
		order []int
		times []int
	}{
		"none: first come, first served": {Parameters{Policy: None, Depth: 1, Workloads: two},
			all(at(1, 0), at(0, 1), at(1, 2), at(0, 2)), []int{0, 1, 2, 3}, []int{0, 10, 20, 30}},
		"depth 2":  {Parameters{Policy: None, Depth: 2, Workloads: one()}, at(0, 0, 0, 0), nil, []int{0, 0, 10}},
		"no depth": {Parameters{Policy: None, Workloads: one()}, at(0, 0, 0, 0), nil, []int{0, 0, 0}},
		// Job 0 holds the device for 10 ms. Deadlines: 1 at 101, 2 at 32, 3 at 139, 4 at 69; 5 has none.
		"edf: the earliest deadline": {Parameters{Policy: EDF, Depth: 1, Workloads: slos},
			all(at(2, 0), at(0, 1), at(1, 2), at(2, 3), at(0, 39), at(1, 39)), []int{0, 2, 1, 3, 5, 4}, nil},
		// The device is busy until 95 ms. Deadlines: job 1 at 101 ms, job 2 at 120 ms.
		"edf: an old request of a long SLO": {Parameters{Policy: EDF, Depth: 1, Workloads: slos},
			all([]job{{1, 0, 0.095}}, at(0, 1), at(1, 90)), []int{0, 1, 2}, nil},
		"byslo: strict priority": {Parameters{Policy: BySLO, Depth: 1, Workloads: slos},
			all([]job{{2, 0, 0.095}}, at(2, 0), at(0, 1), at(1, 90, 91)), []int{0, 3, 4, 2, 1}, nil},
		"byslo: first come among equals": {Parameters{Policy: BySLO, Depth: 1, Workloads: two},
			all(at(0, 0), at(1, 1), at(0, 2), at(1, 3)), []int{0, 1, 2, 3}, nil},
		// a's finish tags increase by 5, b's by 10. Start tags: 0:a0 1:b0 2:a5 3:a10 4:a15 5:b10 6:b20.
		"ps: the smallest start tag": {Parameters{Policy: PS, Depth: 1, Workloads: []Workload{{Name: "a", Weight: 2}, {Name: "b"}}},
			all(at(0, 0), at(1, 0), at(0, 0, 0, 0), at(1, 0, 0)), []int{0, 1, 2, 3, 5, 4, 6}, nil},
		// a alone is at start tag 30 when b arrives at 35 ms: b starts at 30, and they alternate.
		"ps: no credit for idling": {Parameters{Policy: PS, Depth: 1, Workloads: two},
			all(at(0, 0, 0, 0, 0, 0, 0), at(1, 35, 35, 35)), []int{0, 1, 2, 3, 6, 4, 7, 5, 8}, nil},
		// a used 100 ms alone, then all was idle: at 200 ms both start equal, a first by arrival.
		"ps: nothing is kept beyond a busy period": {Parameters{Policy: PS, Depth: 1, Workloads: two},
			all([]job{{0, 0, 0.1}}, at(0, 200), at(1, 200), at(0, 200), at(1, 200)), []int{0, 1, 2, 3, 4}, nil},
		// b has half of the device, whatever a's weight: R tags of b are 0, 20, 40 ms; there is no L.
		"mclock: reservations first": {Parameters{Policy: MClock, Depth: 1, Workloads: []Workload{
			{Name: "a", Weight: 100}, {Name: "b", Weight: 1, Reservation: 0.5}}},
			all(at(0, 0, 0, 0, 0), at(1, 0, 0, 0)), []int{4, 0, 5, 1, 6, 2, 3}, nil},
		// 0: job 0 by reservation; 10: job 1 by weight, R of job 2 falls from 200 to 100 ms; 20: job 3 by
		// weight (a's P is smallest), until 120; then job 2 is due and precedes job 4.
		"mclock: service by weight leaves the reservation": {Parameters{Policy: MClock, Depth: 1, Workloads: []Workload{
			{Name: "a", Weight: 1000}, {Name: "b", Weight: 1, Reservation: 0.1}}},
			all(at(1, 0, 0, 0), []job{{0, 5 * ms, 0.1}, {0, 5 * ms, 0.1}}), []int{0, 1, 3, 2, 4}, nil},
		"mclock: limits": {Parameters{Policy: MClock, Depth: 1, Workloads: []Workload{{Name: "a", Limit: 0.25}}},
			at(0, 0, 0, 0), nil, []int{0, 40, 80}},
		"pm: priority, and first come within one": {Parameters{Policy: PM, Depth: 1, Workloads: []Workload{
			{Name: "low", Priority: 2}, {Name: "x", Priority: 1}, {Name: "y", Priority: 1}}},
			all(at(0, 0, 1), at(2, 2), at(1, 3), at(2, 4)), []int{0, 2, 3, 4, 1}, nil},
		// Bucket 1 passes one request every 10 ms. Bucket 2 holds 30 ms: at 20 ms it has 20 - 5 = 15 ms and
		// takes the third (25), at 30 ms it has 22.5 and the fourth waits until 40.
		"pm: all buckets": {Parameters{Policy: PM, Workloads: one([2]float64{1, 0.01}, [2]float64{0.25, 0.03})},
			at(0, 0, 0, 0, 0), nil, []int{0, 10, 20, 40}},
		// A bucket of 20 ms takes two requests, then one every 20 ms, and is empty at 80 ms.
		"pm: a bucket holds two": {Parameters{Policy: PM, Depth: 4, Workloads: one(halfDevice)},
			at(0, 0, 0, 0, 0, 200, 200, 200), nil, []int{0, 0, 20, 40, 200, 200, 220}},
		// a's second request has room at 100 ms; until then b is served, and then a precedes b.
		"pm: held requests let others pass": {Parameters{Policy: PM, Depth: 1, Workloads: []Workload{
			{Name: "a", Priority: 1, Pairs: [][2]float64{{0.1, 0.01}}}, {Name: "b", Priority: 2}}},
			all(at(0, 0, 0), at(1, 0), []job{{1, 0, 0.085}}, at(1, 0)), []int{0, 2, 3, 1, 4}, []int{0, 105, 10, 20, 115}},
		// low's requests arrive exactly at its rate while the device serves high for 100 ms. They were in
		// profile all along, so they follow each other without further waiting.
		"pm: a request is charged when it may go": {Parameters{Policy: PM, Depth: 1, Workloads: []Workload{
			{Name: "high", Priority: 1}, {Name: "low", Priority: 2, Pairs: [][2]float64{{0.5, 0.01}}}}},
			all([]job{{0, 0, 0.1}}, at(1, 1, 21, 41, 61)), nil, []int{0, 100, 110, 120, 130}},
		// 50 ms leak in 100 ms; the last request needs the fill at 8 ms: (50 - 8) / 0.5 = 84 ms later.
		"pm: an empty bucket takes what is larger": {Parameters{Policy: PM, Workloads: one([2]float64{0.5, 0.01})},
			[]job{{0, 0, 0.05}, {0, 0, 0.05}, {0, 0, 0.002}}, nil, []int{0, 100, 184}},
		// a: job 0 is in profile at 0 (fill 10 ms). Job 1 goes out of profile at 10 ms (fill 5, then 10).
		// The next has room at 30 ms, so b goes first at 20 and 24 ms, and a again at 34.
		"pm best effort: the tokens that are there": {Parameters{Policy: PM, Mode: BestEffort, Depth: 1, Workloads: []Workload{
			{Name: "a", Priority: 1, Pairs: [][2]float64{{0.5, 0.01}}}, {Name: "b", Priority: 2}}},
			all(at(0, 0, 0, 11), []job{{1, 11 * ms, 0.004}}, at(1, 11, 11)), nil, []int{0, 10, 34, 20, 24, 44}},
		"pm hold: best-effort workloads last": {Parameters{Policy: PM, Depth: 1, Workloads: []Workload{
			{Name: "unknown", Priority: -9, BestEffort: true}, {Name: "a", Priority: 7}}},
			all(at(0, 0, 0), at(1, 1, 2)), []int{0, 2, 3, 1}, nil},
		"pm best effort: best-effort workloads last": {Parameters{Policy: PM, Mode: BestEffort, Depth: 1, Workloads: []Workload{
			{Name: "unknown", Priority: -9, BestEffort: true}, {Name: "a", Priority: 7}}},
			all(at(0, 0, 0), at(1, 1, 2)), []int{0, 2, 3, 1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := drive(t, mustNew(t, c.Parameters), c.jobs)
			if c.order != nil {
				wantOrder(t, got, c.order...)
			}
			for _, one := range got {
				if c.times == nil {
					break
				}
				if d := one.dispatched - time.Duration(c.times[one.id])*ms; d.Abs() > time.Microsecond {
					t.Errorf("job %d is dispatched at %v, want %d ms", one.id, one.dispatched, c.times[one.id])
				}
			}
		})
	}
}

func TestMClockSharesByWeightAndLetsNobodySaveUp(t *testing.T) {
	count := func(a, b float64, jobs []job, from, to int) (ofB int) {
		e := mustNew(t, Parameters{Policy: MClock, Depth: 1, Workloads: []Workload{{Name: "a", Weight: a}, {Name: "b", Weight: b}}})
		for _, one := range drive(t, e, jobs)[from:to] {
			ofB += one.workload
		}
		return ofB
	}
	var alternating []job
	for range 40 {
		alternating = append(alternating, all(at(0, 0), at(1, 0))...)
	}
	if b := count(3, 1, alternating, 0, 40); b < 9 || b > 11 {
		t.Errorf("of 40 requests %d were of the workload with weight 1 of 4", b)
	}
	late := at(1, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000)
	// b was idle for a second while a was served; after b's arrival they alternate.
	if b := count(1e-3, 1e-3, all(at(0, make([]int, 110)...), late), 100, 114); b < 6 || b > 8 {
		t.Errorf("of 14 requests after it came %d were of the workload that had been idle", b)
	}
}

// TestPMCountsWhatIsHeldAndOutOfProfile in both modes.
func TestPMCountsWhatIsHeldAndOutOfProfile(t *testing.T) {
	e := mustNew(t, Parameters{Policy: PM, Depth: 4, Workloads: []Workload{{Name: "a", Pairs: [][2]float64{halfDevice}}}})
	drive(t, e, at(0, 0, 0, 0, 0, 200, 200, 200))
	if s := e.Stats()[0]; s.Held != 3 || s.OutOfProfile != 0 {
		t.Errorf("%d were held and %d out of profile, want 3 and 0", s.Held, s.OutOfProfile)
	}
	e = mustNew(t, Parameters{Policy: PM, Mode: BestEffort, Depth: 1, Workloads: []Workload{
		{Name: "bursty", Priority: 1, Pairs: [][2]float64{{0.01, 0.01}}},
		{Name: "calm", Priority: 2, Pairs: [][2]float64{{0.9, 0.03}}},
		{Name: "other", Priority: 3, Pairs: [][2]float64{{0.01, 0}}}}})
	got := drive(t, e, all(at(0, 0, 0, 0), at(2, 0, 1), at(1, 2, 2)))
	// Jobs 0 and 3 (larger than an empty bucket) are in profile, then calm's; the rest by arrival.
	wantOrder(t, got, 0, 5, 6, 3, 1, 2, 4)
	for _, one := range got {
		if want := one.id == 0 || one.id == 3 || one.id >= 5; one.inProfile != want {
			t.Errorf("job %d: in profile is %v", one.id, one.inProfile)
		}
	}
}
