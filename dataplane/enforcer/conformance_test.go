package enforcer

import (
	"testing"
	"time"
)

func TestNoneServesFirstComeFirstServed(t *testing.T) {
	e := mustNew(t, Parameters{Policy: None, Depth: 1, Workloads: []Workload{{Name: "a"}, {Name: "b"}}})
	got := drive(t, e, []job{{1, 0, 0.01}, {0, 1 * ms, 0.01}, {1, 2 * ms, 0.01}, {0, 2 * ms, 0.01}})
	wantOrder(t, got, 0, 1, 2, 3)
	wantDispatch(t, got, 0, 10*ms, 20*ms, 30*ms)
}

func TestDepthIsHowManyAreOutstanding(t *testing.T) {
	jobs := []job{{0, 0, 0.01}, {0, 0, 0.01}, {0, 0, 0.01}}
	e := mustNew(t, Parameters{Policy: None, Depth: 2, Workloads: []Workload{{Name: "a"}}})
	wantDispatch(t, drive(t, e, jobs), 0, 0, 10*ms)
	e = mustNew(t, Parameters{Policy: None, Workloads: []Workload{{Name: "a"}}})
	wantDispatch(t, drive(t, e, jobs), 0, 0, 0)
}

func TestEDFServesTheEarliestDeadline(t *testing.T) {
	e := mustNew(t, Parameters{Policy: EDF, Depth: 1, Workloads: []Workload{
		{Name: "slow", SLO: Span(100 * ms)}, {Name: "fast", SLO: Span(30 * ms)}, {Name: "copy"}}})
	// Job 0 holds the device for 10 ms. Deadlines: 1 at 101, 2 at 32, 3 at 139, 4 at 69; 5 has none.
	got := drive(t, e, []job{{2, 0, 0.01}, {0, 1 * ms, 0.01}, {1, 2 * ms, 0.01}, {2, 3 * ms, 0.01},
		{0, 39 * ms, 0.01}, {1, 39 * ms, 0.01}})
	wantOrder(t, got, 0, 2, 1, 3, 5, 4)
}

func TestEDFPrefersAnOldRequestOfALongSLO(t *testing.T) {
	e := mustNew(t, Parameters{Policy: EDF, Depth: 1, Workloads: []Workload{
		{Name: "slow", SLO: Span(100 * ms)}, {Name: "fast", SLO: Span(30 * ms)}}})
	// The device is busy until 95 ms. Deadlines: job 1 at 101 ms, job 2 at 120 ms.
	got := drive(t, e, []job{{1, 0, 0.095}, {0, 1 * ms, 0.01}, {1, 90 * ms, 0.01}})
	wantOrder(t, got, 0, 1, 2)
}

func TestBySLOIsStrictPriority(t *testing.T) {
	e := mustNew(t, Parameters{Policy: BySLO, Depth: 1, Workloads: []Workload{
		{Name: "slow", SLO: Span(100 * ms)}, {Name: "fast", SLO: Span(30 * ms)}, {Name: "copy"}}})
	got := drive(t, e, []job{{2, 0, 0.095}, {2, 0, 0.01}, {0, 1 * ms, 0.01}, {1, 90 * ms, 0.01},
		{1, 91 * ms, 0.01}})
	wantOrder(t, got, 0, 3, 4, 2, 1)
}

func TestBySLOIsFirstComeAmongEqualSLOs(t *testing.T) {
	e := mustNew(t, Parameters{Policy: BySLO, Depth: 1, Workloads: []Workload{
		{Name: "a", SLO: Span(30 * ms)}, {Name: "b", SLO: Span(30 * ms)}}})
	wantOrder(t, drive(t, e, []job{{0, 0, 0.01}, {1, 1 * ms, 0.01}, {0, 2 * ms, 0.01},
		{1, 3 * ms, 0.01}}), 0, 1, 2, 3)
}

// Expected tags for weights 2 and 1, every cost 10 ms: a's finish tags increase by 5, b's by 10 (in
// ms). Jobs 0 (a) and 1 (b) come first and start at 0; then a: 5, 10, 15, b: 10, 20.
func TestPSServesTheSmallestStartTag(t *testing.T) {
	e := mustNew(t, Parameters{Policy: PS, Depth: 1, Workloads: []Workload{
		{Name: "a", Weight: 2}, {Name: "b", Weight: 1}}})
	got := drive(t, e, []job{{0, 0, 0.01}, {1, 0, 0.01}, {0, 0, 0.01}, {0, 0, 0.01}, {0, 0, 0.01},
		{1, 0, 0.01}, {1, 0, 0.01}})
	// Start tags: 0:a0 1:b0 2:a5 3:a10 4:a15 5:b10 6:b20; ties by arrival.
	wantOrder(t, got, 0, 1, 2, 3, 5, 4, 6)
}

func TestPSGivesNoCreditForIdling(t *testing.T) {
	e := mustNew(t, Parameters{Policy: PS, Depth: 1, Workloads: []Workload{{Name: "a"}, {Name: "b"}}})
	// a alone is at start tag 30 when b arrives at 35 ms: b starts at 30, and they alternate.
	jobs := []job{{0, 0, 0.01}, {0, 0, 0.01}, {0, 0, 0.01}, {0, 0, 0.01}, {0, 0, 0.01}, {0, 0, 0.01},
		{1, 35 * ms, 0.01}, {1, 35 * ms, 0.01}, {1, 35 * ms, 0.01}}
	wantOrder(t, drive(t, e, jobs), 0, 1, 2, 3, 6, 4, 7, 5, 8)
}

func TestPSForgetsAtTheEndOfABusyPeriod(t *testing.T) {
	e := mustNew(t, Parameters{Policy: PS, Depth: 1, Workloads: []Workload{{Name: "a"}, {Name: "b"}}})
	// a used 100 ms alone, then all was idle: at 200 ms both start equal, a first by arrival.
	got := drive(t, e, []job{{0, 0, 0.1}, {0, 200 * ms, 0.01}, {1, 200 * ms, 0.01},
		{0, 200 * ms, 0.01}, {1, 200 * ms, 0.01}})
	wantOrder(t, got, 0, 1, 2, 3, 4)
}

func TestMClockReservationsComeFirst(t *testing.T) {
	// b has half of the device, whatever a's weight: R tags of b are 0, 20, 40 ms; there is no L.
	e := mustNew(t, Parameters{Policy: MClock, Depth: 1, Workloads: []Workload{
		{Name: "a", Weight: 100}, {Name: "b", Weight: 1, Reservation: 0.5}}})
	jobs := []job{{0, 0, 0.01}, {0, 0, 0.01}, {0, 0, 0.01}, {0, 0, 0.01}, {1, 0, 0.01}, {1, 0, 0.01},
		{1, 0, 0.01}}
	// t=0: R of job 4 is due. 10: a by weight. 20: R of job 5 due. 30: a. 40: job 6. Then a.
	wantOrder(t, drive(t, e, jobs), 4, 0, 5, 1, 6, 2, 3)
}

func TestMClockWeightServiceLeavesTheReservationAlone(t *testing.T) {
	// b alone gets service by weight beyond its reservation. This must not count against the
	// reservation: 1/r is subtracted from its R tags. R tags at first: 0, 100, 200 ms.
	e := mustNew(t, Parameters{Policy: MClock, Depth: 1, Workloads: []Workload{
		{Name: "a", Weight: 1000}, {Name: "b", Weight: 1, Reservation: 0.1}}})
	jobs := []job{{1, 0, 0.01}, {1, 0, 0.01}, {1, 0, 0.01}, {0, 5 * ms, 0.1}, {0, 5 * ms, 0.1}}
	// 0: job 0 by reservation; 10: job 1 by weight, R of job 2 falls from 200 to 100 ms; 20: job 3
	// by weight (a's P is smallest), until 120; then job 2 is due and precedes job 4.
	wantOrder(t, drive(t, e, jobs), 0, 1, 3, 2, 4)
}

func TestMClockLimitsHold(t *testing.T) {
	e := mustNew(t, Parameters{Policy: MClock, Depth: 1, Workloads: []Workload{{Name: "a", Limit: 0.25}}})
	got := drive(t, e, []job{{0, 0, 0.01}, {0, 0, 0.01}, {0, 0, 0.01}})
	wantDispatch(t, got, 0, 40*ms, 80*ms)
}

func TestMClockSharesByWeight(t *testing.T) {
	e := mustNew(t, Parameters{Policy: MClock, Depth: 1, Workloads: []Workload{
		{Name: "a", Weight: 3}, {Name: "b", Weight: 1}}})
	var jobs []job
	for range 40 {
		jobs = append(jobs, job{0, 0, 0.01}, job{1, 0, 0.01})
	}
	got := drive(t, e, jobs)
	var a int
	for _, one := range got[:40] {
		if one.workload == 0 {
			a++
		}
	}
	if a < 29 || a > 31 {
		t.Errorf("of 40 requests %d were of the workload with weight 3 of 4", a)
	}
}

func TestMClockLetsNobodySaveUp(t *testing.T) {
	// b was idle for a second while a was served; after b's arrival they alternate.
	e := mustNew(t, Parameters{Policy: MClock, Depth: 1, Workloads: []Workload{
		{Name: "a", Weight: 1e-3}, {Name: "b", Weight: 1e-3}}})
	var jobs []job
	for range 110 {
		jobs = append(jobs, job{0, 0, 0.01})
	}
	for range 10 {
		jobs = append(jobs, job{1, time.Second, 0.01})
	}
	var b int
	for _, one := range drive(t, e, jobs)[100:114] {
		b += one.workload
	}
	if b < 6 || b > 8 {
		t.Errorf("of 14 requests after it came %d were of the workload that had been idle", b)
	}
}
