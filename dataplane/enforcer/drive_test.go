package enforcer

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"hotbed/dataplane/tests/must"
)

const ms = time.Millisecond

// job is a test's request: its workload, time and cost.
type job struct {
	workload int
	at       time.Duration
	cost     float64
}

// served is the result of a job.
type served struct {
	job
	id         int
	dispatched time.Duration
	done       time.Duration
	inProfile  bool
}

// change is a test's action at a given time.
type change struct {
	at time.Duration
	do func(now time.Duration, e *Enforcer)
}

// drive runs jobs, sorted by time, through an enforcer in front of a device. The device serves one
// request at a time, in dispatch order, for the time of its cost. drive fails the test if a request
// is lost or the depth is exceeded, and returns the jobs in dispatch order.
func drive(t *testing.T, e *Enforcer, jobs []job, changes ...change) []served {
	t.Helper()
	took := make([]time.Duration, len(jobs))
	for i, one := range jobs {
		took[i] = time.Duration(math.Round(one.cost * 1e9))
	}
	return driveFor(t, e, jobs, took, changes...)
}

// driveFor is drive with a device that takes took[i] for job i.
func driveFor(t *testing.T, e *Enforcer, jobs []job, took []time.Duration, changes ...change) []served {
	t.Helper()
	var out []served
	index := map[*Request]int{}
	free, wake := time.Duration(0), Forever
	var running []*Request // first come, first served
	ends := map[*Request]time.Duration{}
	next := 0
	for now := time.Duration(0); ; {
		for now == Forever || len(out) < len(jobs) || len(running) > 0 {
			r, at := e.Next(now)
			if r == nil {
				wake = at
				if at <= now {
					t.Fatalf("at %v the enforcer asked to be woken at %v", now, at)
				}
				break
			}
			id := r.Data.(int)
			index[r] = len(out)
			out = append(out, served{job: jobs[id], id: id, dispatched: now, inProfile: r.inProfile})
			free = max(free, now) + took[id]
			ends[r] = free
			running = append(running, r)
			if d := e.Parameters().Depth; d > 0 && len(running) > d {
				t.Fatalf("%d requests are outstanding, %d may be", len(running), d)
			}
		}
		at := wake
		if next < len(jobs) {
			at = min(at, jobs[next].at)
		}
		if len(running) > 0 {
			at = min(at, ends[running[0]])
		}
		if len(changes) > 0 {
			at = min(at, changes[0].at)
		}
		if at == Forever {
			break
		}
		now = max(now, at)
		for len(running) > 0 && ends[running[0]] <= now {
			r := running[0]
			running = running[1:]
			out[index[r]].done = now
			e.Done(now, r)
		}
		for len(changes) > 0 && changes[0].at <= now {
			changes[0].do(now, e)
			changes = changes[1:]
		}
		for next < len(jobs) && jobs[next].at <= now {
			e.Arrive(now, &Request{Workload: jobs[next].workload, Cost: jobs[next].cost, Data: next})
			next++
		}
	}
	if len(out) != len(jobs) || e.Queued() != 0 || e.Outstanding() != 0 {
		t.Fatalf("%d of %d requests were served, %d wait, %d are outstanding", len(out), len(jobs),
			e.Queued(), e.Outstanding())
	}
	return out
}

func mustNew(t testing.TB, p Parameters) *Enforcer {
	t.Helper()
	e, err := New(p)
	must.Succeed(t, err)
	return e
}

// order returns the ids of the served jobs.
func order(s []served) []int {
	out := make([]int, len(s))
	for i, one := range s {
		out[i] = one.id
	}
	return out
}

func wantOrder(t *testing.T, got []served, want ...int) {
	t.Helper()
	if !slices.Equal(order(got), want) {
		t.Errorf("served in the order %v, want %v", order(got), want)
	}
}

// randomParameters returns random parameters of a policy.
func randomParameters(random *rand.Rand, policy Policy, workloads int) Parameters {
	p := Parameters{Policy: policy, Depth: 1 + random.IntN(6), Mode: Hold}
	if random.IntN(2) == 0 {
		p.Mode = BestEffort
	}
	p.Cake.Interval = Span(50 * ms)
	for i := range workloads {
		w := Workload{Name: string(rune('a' + i)), Priority: random.IntN(3),
			SLO: Span(random.IntN(4)) * Span(10*ms), Weight: math.Exp(2 * random.NormFloat64())}
		for range random.IntN(4) {
			w.Pairs = append(w.Pairs, [2]float64{0.05 + random.Float64(), 0.02 * random.Float64()})
		}
		if random.IntN(2) == 0 {
			w.Reservation = random.Float64() / float64(workloads)
			w.Limit = w.Reservation + random.Float64()
		}
		w.BestEffort = random.IntN(8) == 0
		p.Workloads = append(p.Workloads, w)
	}
	return p
}

// randomJobs returns bursts of requests with a mean load of about one device.
func randomJobs(random *rand.Rand, workloads, count int) []job {
	jobs := make([]job, 0, count)
	now := time.Duration(0)
	for range count {
		if random.IntN(3) == 0 {
			now += time.Duration(random.ExpFloat64() * float64(9*ms))
		}
		cost := 0.006 * random.Float64()
		if random.IntN(10) == 0 {
			cost = 0
		}
		jobs = append(jobs, job{random.IntN(workloads), now, cost})
	}
	return jobs
}
