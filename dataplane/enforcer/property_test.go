package enforcer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const trials = 80

// each runs a trial with many seeds.
func each(t *testing.T, trial func(t *testing.T, random *rand.Rand)) {
	t.Helper()
	for seed := range uint64(trials) {
		trial(t, rand.New(rand.NewPCG(seed, 5)))
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

// conserves reports whether a policy never idles the device while a request waits.
func conserves(p Parameters) bool {
	switch p.Policy {
	case PM:
		return p.Mode == BestEffort
	case MClock:
		return !slices.ContainsFunc(p.Workloads, func(w Workload) bool { return w.Limit > 0 })
	}
	return true
}

// Every policy serves each request once, in the order of its workload, and again so for the same
// input. A policy that never idles the device ends at the time given by the work.
func TestEveryPolicyServesEverythingOnceInTheOrderOfItsWorkload(t *testing.T) {
	each(t, func(t *testing.T, random *rand.Rand) {
		for _, policy := range Policies {
			workloads := 1 + random.IntN(5)
			p := randomParameters(random, policy, workloads)
			jobs := randomJobs(random, workloads, 80)
			got := drive(t, mustNew(t, p), jobs)
			if again := drive(t, mustNew(t, p), jobs); !slices.Equal(got, again) {
				t.Errorf("%s: served in the order %v and %v", policy, order(got), order(again))
			}
			seen, last, end := map[int]bool{}, make([]int, workloads), time.Duration(0)
			for _, one := range got {
				if seen[one.id] || one.id < last[one.workload] || one.dispatched < one.at {
					t.Errorf("%s: job %d was served twice, before it came or out of order", policy, one.id)
				}
				seen[one.id], last[one.workload] = true, one.id
				end = max(end, one.done)
			}
			want := time.Duration(0)
			for _, one := range jobs {
				want = max(want, one.at) + time.Duration(math.Round(one.cost*1e9))
			}
			if d := (end - want).Abs(); conserves(p) && d > time.Microsecond {
				t.Errorf("%s %s: all was done at %v, with the device never idle at %v", policy, p.Mode, end, want)
			}
		}
	})
}

// burst computes the r-b curve by its definition (section 4.1): b(r) is the largest work of
// consecutive requests minus r times their duration.
func burst(jobs []job, rate float64) float64 {
	most := 0.0
	for i := range jobs {
		sum := 0.0
		for j := i; j < len(jobs); j++ {
			sum += jobs[j].cost
			most = math.Max(most, sum-rate*(jobs[j].at-jobs[i].at).Seconds())
		}
	}
	return most
}

func TestATraceIsHeldUpByABucketBelowItsCurveAndByNoneOnIt(t *testing.T) {
	each(t, func(t *testing.T, random *rand.Rand) {
		jobs := randomJobs(random, 1, 150)
		var pairs [][2]float64
		for range 4 {
			rate := 0.05 + 2*random.Float64()
			pairs = append(pairs, [2]float64{rate, burst(jobs, rate)})
		}
		held := func(pairs ...[2]float64) uint64 {
			e := mustNew(t, Parameters{Policy: PM, Workloads: []Workload{{Name: "a", Pairs: pairs}}})
			drive(t, e, jobs)
			return e.Stats()[0].Held
		}
		if n := held(pairs...); n != 0 {
			t.Errorf("%d requests were held up by the trace's own pairs %v", n, pairs)
		}
		for _, pair := range pairs {
			// Not below the largest request, which passes with any burst.
			if less := pair[1] * 0.999; less > 0.006 && held([2]float64{pair[0], less}) == 0 {
				t.Errorf("none was held up by 0.999 of the burst of %v", pair)
			}
		}
	})
}

// While two workloads both wait, their services, divided by their weights, differ by at most a
// largest request of each, so divided (Goyal, Vin and Cheng, SIGCOMM 1996, theorem 1).
func TestPSIsFairAndStarvesNobody(t *testing.T) {
	each(t, func(t *testing.T, random *rand.Rand) {
		p := randomParameters(random, PS, 3)
		e := mustNew(t, p)
		var jobs []job
		for range 50 {
			for w := range 3 {
				jobs = append(jobs, job{w, 0, 0.001 + 0.01*random.Float64()})
			}
		}
		got := drive(t, e, jobs)
		left := []int{50, 50, 50}
		var all [][3]float64 // service divided by weight, before each dispatch
		var sum [3]float64
		for _, one := range got {
			if slices.Min(left) == 0 {
				break
			}
			all = append(all, sum)
			sum[one.workload] += one.cost / p.Workloads[one.workload].Weight
			left[one.workload]--
		}
		for a := range 3 {
			for b := range a {
				most := 0.011/p.Workloads[a].Weight + 0.011/p.Workloads[b].Weight
				for i := range all {
					for j := i; j < len(all); j++ {
						gap := (all[j][a] - all[i][a]) - (all[j][b] - all[i][b])
						if math.Abs(gap) > most+1e-9 {
							t.Errorf("workloads %d and %d are %g apart, at most %g is fair", a, b, gap, most)
							return
						}
					}
				}
			}
		}
	})
}

func TestRequestsThatCostNothingStarveNobodyInPS(t *testing.T) {
	e := mustNew(t, Parameters{Policy: PS, Depth: 1, Workloads: []Workload{{Name: "free"}, {Name: "b"}}})
	e.Arrive(0, &Request{Workload: 0})
	waits := &Request{Workload: 1, Cost: 0.001}
	first := &Request{Workload: 1, Cost: 0.001}
	e.Arrive(0, first)
	e.Arrive(0, waits)
	for range 2_000_000 {
		e.Arrive(0, &Request{Workload: 0})
		r, _ := e.Next(0)
		if r == waits {
			return
		}
		e.Done(0, r)
	}
	t.Error("2,000,000 requests that cost nothing went before one that had come earlier")
}

func TestRequestsCanBeTakenBack(t *testing.T) {
	each(t, func(t *testing.T, random *rand.Rand) {
		for _, policy := range Policies {
			p := randomParameters(random, policy, 3)
			e := mustNew(t, p)
			var all []*Request
			outcome := map[*Request]string{}
			now := time.Duration(0)
			for range 300 {
				now += time.Duration(random.IntN(4)) * ms
				switch random.IntN(3) {
				case 0:
					r := &Request{Workload: random.IntN(3), Cost: 0.003 * random.Float64()}
					e.Arrive(now, r)
					all = append(all, r)
				case 1:
					if r, _ := e.Next(now); r != nil {
						if outcome[r] != "" {
							t.Fatalf("%s: a request that was %s was dispatched", policy, outcome[r])
						}
						outcome[r] = "dispatched"
						if random.IntN(2) == 0 {
							e.Done(now, r)
							outcome[r] = "done"
						}
					}
				case 2:
					if len(all) > 0 {
						r := all[random.IntN(len(all))]
						if got := e.Remove(now, r); got != (outcome[r] == "") {
							t.Fatalf("%s: Remove of a request that was %q says %v", policy, outcome[r], got)
						} else if got {
							outcome[r] = "removed"
						}
					}
				}
			}
			for _, r := range all {
				if outcome[r] == "dispatched" {
					e.Done(now, r)
					outcome[r] = "done"
				}
			}
			for now += time.Hour * 1e4; e.Queued() > 0; {
				r, wake := e.Next(now)
				if r == nil {
					now = max(now+1, wake)
					continue
				}
				outcome[r] = "done"
				e.Done(now, r)
			}
			for _, r := range all {
				if outcome[r] != "done" && outcome[r] != "removed" {
					t.Errorf("%s: a request was lost", policy)
				}
			}
		}
	})
}

func TestParametersChangeUnderLoadWithoutLosingRequests(t *testing.T) {
	each(t, func(t *testing.T, random *rand.Rand) {
		jobs := randomJobs(random, 2, 80)
		var changes []change
		for at := time.Duration(0); at < 200*ms; at += time.Duration(1+random.IntN(20)) * ms {
			p := randomParameters(random, Policies[random.IntN(len(Policies))], 2+random.IntN(3))
			for i := range p.Workloads { // occasionally with other names, and in another order
				p.Workloads[i].Name = fmt.Sprint((i + random.IntN(2)) % len(p.Workloads))
			}
			changes = append(changes, change{at, func(now time.Duration, e *Enforcer) {
				if p.Validate() == nil {
					if err := e.SetParameters(now, p); err != nil {
						t.Error(err)
					}
				}
			}})
		}
		p := randomParameters(random, Policies[random.IntN(len(Policies))], 2)
		p.Depth = 3
		last := change{time.Hour, func(now time.Duration, e *Enforcer) {
			if err := e.SetParameters(now, p); err != nil {
				t.Error(err)
			}
		}}
		first := mustNew(t, p)
		for i := range changes {
			changes[i].at = max(changes[i].at, 1)
		}
		got := drive(t, first, jobs, append(changes, last)...)
		seen := map[int]bool{}
		for _, one := range got {
			seen[one.id] = true
		}
		if len(seen) != len(jobs) {
			t.Errorf("%d of %d requests were served", len(seen), len(jobs))
		}
	})
}
