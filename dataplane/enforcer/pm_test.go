package enforcer

import (
	"testing"
	"time"
)

// halfDevice is a bucket that leaks half a device and holds 20 ms.
var halfDevice = [2]float64{0.5, 0.02}

func TestPMServesByPriorityAndFirstComeWithinOne(t *testing.T) {
	e := mustNew(t, Parameters{Policy: PM, Depth: 1, Workloads: []Workload{
		{Name: "low", Priority: 2}, {Name: "x", Priority: 1}, {Name: "y", Priority: 1}}})
	got := drive(t, e, []job{{0, 0, 0.01}, {0, 1 * ms, 0.01}, {2, 2 * ms, 0.01}, {1, 3 * ms, 0.01},
		{2, 4 * ms, 0.01}})
	wantOrder(t, got, 0, 2, 3, 4, 1)
}

func TestPMHoldsWhatFindsNoRoom(t *testing.T) {
	e := mustNew(t, Parameters{Policy: PM, Depth: 4, Workloads: []Workload{
		{Name: "a", Pairs: [][2]float64{halfDevice}}}})
	// The bucket takes two requests of 10 ms, then one every 20 ms. After the last at 40 ms it is
	// empty at 80 ms.
	got := drive(t, e, []job{{0, 0, 0.01}, {0, 0, 0.01}, {0, 0, 0.01}, {0, 0, 0.01},
		{0, 200 * ms, 0.01}, {0, 200 * ms, 0.01}, {0, 200 * ms, 0.01}})
	wantDispatch(t, got, 0, 0, 20*ms, 40*ms, 200*ms, 200*ms, 220*ms)
	if s := e.Stats()[0]; s.Held != 3 || s.OutOfProfile != 0 {
		t.Errorf("%d were held and %d out of profile, want 3 and 0", s.Held, s.OutOfProfile)
	}
}

func TestPMWaitsForAllBuckets(t *testing.T) {
	e := mustNew(t, Parameters{Policy: PM, Workloads: []Workload{
		{Name: "a", Pairs: [][2]float64{{1, 0.01}, {0.25, 0.03}}}}})
	// Bucket 1 (burst 10 ms) passes one request every 10 ms. Bucket 2 holds 30 ms: at 20 ms it has
	// 20 - 5 = 15 ms and takes the third (25), at 30 ms it has 22.5 and the fourth waits until 40.
	got := drive(t, e, []job{{0, 0, 0.01}, {0, 0, 0.01}, {0, 0, 0.01}, {0, 0, 0.01}})
	wantDispatch(t, got, 0, 10*ms, 20*ms, 40*ms)
}

func TestPMHeldRequestsLetOthersPass(t *testing.T) {
	e := mustNew(t, Parameters{Policy: PM, Depth: 1, Workloads: []Workload{
		{Name: "a", Priority: 1, Pairs: [][2]float64{{0.1, 0.01}}}, {Name: "b", Priority: 2}}})
	got := drive(t, e, []job{{0, 0, 0.01}, {0, 0, 0.01}, {1, 0, 0.01}, {1, 0, 0.085}, {1, 0, 0.01}})
	// a's second request has room at 100 ms; until then b is served, and then a precedes b.
	wantOrder(t, got, 0, 2, 3, 1, 4)
	wantDispatch(t, got, 0, 105*ms, 10*ms, 20*ms, 115*ms)
}

func TestPMChargesWhenARequestMayGoNotWhenItDoes(t *testing.T) {
	// low's requests arrive exactly at its rate; the device serves higher priority for 100 ms. They
	// were in profile all along, so they follow each other without further waiting.
	e := mustNew(t, Parameters{Policy: PM, Depth: 1, Workloads: []Workload{
		{Name: "high", Priority: 1}, {Name: "low", Priority: 2, Pairs: [][2]float64{{0.5, 0.01}}}}})
	got := drive(t, e, []job{{0, 0, 0.1}, {1, 1 * ms, 0.01}, {1, 21 * ms, 0.01}, {1, 41 * ms, 0.01},
		{1, 61 * ms, 0.01}})
	wantDispatch(t, got, 0, 100*ms, 110*ms, 120*ms, 130*ms)
}

func TestPMLetsThroughWhatIsLargerThanABucketWhenItIsEmpty(t *testing.T) {
	e := mustNew(t, Parameters{Policy: PM, Workloads: []Workload{
		{Name: "a", Pairs: [][2]float64{{0.5, 0.01}}}}})
	got := drive(t, e, []job{{0, 0, 0.05}, {0, 0, 0.05}, {0, 0, 0.002}})
	// 50 ms leak in 100 ms; the last request needs the fill at 8 ms: (50 - 8) / 0.5 = 84 ms later.
	wantDispatch(t, got, 0, 100*ms, 184*ms)
}

func TestPMBestEffortServesOutOfProfileLastFirstCome(t *testing.T) {
	e := mustNew(t, Parameters{Policy: PM, Mode: BestEffort, Depth: 1, Workloads: []Workload{
		{Name: "bursty", Priority: 1, Pairs: [][2]float64{{0.01, 0.01}}},
		{Name: "calm", Priority: 2, Pairs: [][2]float64{{0.9, 0.03}}},
		{Name: "other", Priority: 3, Pairs: [][2]float64{{0.01, 0}}}}})
	got := drive(t, e, []job{{0, 0, 0.01}, {0, 0, 0.01}, {0, 0, 0.01}, {2, 0, 0.01}, {2, 1 * ms, 0.01},
		{1, 2 * ms, 0.01}, {1, 2 * ms, 0.01}})
	// Jobs 0 and 3 (larger than an empty bucket) are in profile, then calm's; the rest by arrival.
	wantOrder(t, got, 0, 5, 6, 3, 1, 2, 4)
	for _, one := range got {
		if want := one.id == 0 || one.id == 3 || one.id >= 5; one.inProfile != want {
			t.Errorf("job %d: in profile is %v", one.id, one.inProfile)
		}
	}
}

func TestPMBestEffortTakesTheTokensThatAreThere(t *testing.T) {
	e := mustNew(t, Parameters{Policy: PM, Mode: BestEffort, Depth: 1, Workloads: []Workload{
		{Name: "a", Priority: 1, Pairs: [][2]float64{{0.5, 0.01}}}, {Name: "b", Priority: 2}}})
	// a: job 0 is in profile at 0 (fill 10 ms). Job 1 goes out of profile at 10 ms (fill 5, then
	// 10). The next has room at 30 ms, so b goes first at 20 and 24 ms, and a again at 34.
	got := drive(t, e, []job{{0, 0, 0.01}, {0, 0, 0.01}, {0, 11 * ms, 0.01}, {1, 11 * ms, 0.004},
		{1, 11 * ms, 0.010}, {1, 11 * ms, 0.01}})
	wantDispatch(t, got, 0, 10*ms, 34*ms, 20*ms, 24*ms, 44*ms)
}

func TestPMBestEffortWorkloadGoesLastInBothModes(t *testing.T) {
	for _, mode := range []Mode{Hold, BestEffort} {
		e := mustNew(t, Parameters{Policy: PM, Mode: mode, Depth: 1, Workloads: []Workload{
			{Name: "unknown", Priority: -9, BestEffort: true}, {Name: "a", Priority: 7}}})
		wantOrder(t, drive(t, e, []job{{0, 0, 0.01}, {0, 0, 0.01}, {1, 1 * ms, 0.01}, {1, 2 * ms, 0.01}}),
			0, 2, 3, 1)
	}
}

func TestPMTheOwnBucketsOfATraceDoNotHoldIt(t *testing.T) {
	// Work of 10 ms at 0, 10 and 25 ms: the fill at rate 0.5 is at most 10, 15, 17.5 ms.
	jobs := []job{{0, 0, 0.01}, {0, 10 * ms, 0.01}, {0, 25 * ms, 0.01}}
	e := mustNew(t, Parameters{Policy: PM, Workloads: []Workload{
		{Name: "a", Pairs: [][2]float64{{0.5, 0.0175}}}}})
	wantDispatch(t, drive(t, e, jobs), 0, 10*ms, 25*ms)
	e = mustNew(t, Parameters{Policy: PM, Workloads: []Workload{
		{Name: "a", Pairs: [][2]float64{{0.5, 0.0174}}}}})
	wantDispatch(t, drive(t, e, jobs), 0, 10*ms, 25*ms+200*time.Microsecond)
}
