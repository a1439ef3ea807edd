package enforcer

import (
	"fmt"
	"testing"
	"time"

	"hotbed/dataplane/internal/command"
)

// BenchmarkDecisions counts the arrival, dispatch and end of one request as one decision. Every
// workload has eight buckets and at least one waiting request.
func BenchmarkDecisions(b *testing.B) {
	for _, workloads := range []int{4, 32, 200} {
		for _, policy := range Policies {
			b.Run(fmt.Sprintf("%s/%d", policy, workloads), func(b *testing.B) {
				decide(b, policy, workloads)
			})
		}
	}
}

func decide(b *testing.B, policy Policy, workloads int) {
	p := Parameters{Policy: policy, Depth: 8}
	for i := range workloads {
		w := Workload{Name: fmt.Sprint(i), Priority: i, SLO: Span(time.Duration(1+i%7) * ms),
			Reservation: 0.5 / float64(workloads)}
		for k := range 8 {
			w.Pairs = append(w.Pairs, [2]float64{float64(8 - k), 0.01 * float64(1+k)})
		}
		p.Workloads = append(p.Workloads, w)
	}
	e := mustNew(b, p)
	const apart = 100 * time.Microsecond
	requests := make([]Request, 2*workloads+8)
	var free []*Request
	for i := range requests {
		requests[i].Workload, requests[i].Cost = i%workloads, 80e-6
		free = append(free, &requests[i])
	}
	now := time.Duration(0)
	for _, r := range free[:2*workloads] {
		e.Arrive(now, r)
	}
	free = free[2*workloads:]
	b.ReportAllocs()
	b.ResetTimer()
	before := command.ProcessorTime()
	for i := range b.N {
		now += apart
		r := free[len(free)-1]
		free = free[:len(free)-1]
		r.Workload = i % workloads
		e.Arrive(now, r)
		got, wake := e.Next(now)
		for got == nil {
			now = wake
			got, wake = e.Next(now)
		}
		e.Done(now, got)
		free = append(free, got)
	}
	b.ReportMetric(float64(b.N)/(command.ProcessorTime()-before).Seconds(), "decisions/cpu-s")
}
