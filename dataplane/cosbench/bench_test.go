package cosbench

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"hotbed/dataplane/cosbench/store"
	"hotbed/dataplane/internal/command"
)

// BenchmarkEngine measures the driver's own cost per operation (drawing, content, measuring) on a
// store that does nothing. CPU-ns/op is the CPU time of all threads.
func BenchmarkEngine(b *testing.B) {
	for _, c := range []struct {
		name, operation string
		options         Options
	}{
		{"read", `type="read" config="containers=u(1,32);objects=u(1,1000)"`, Options{}},
		{"write64KB", `type="write" config="containers=u(1,32);objects=u(1,1000);sizes=c(64)KB"`, Options{}},
		{"delete", `type="delete" config="containers=u(1,32);objects=u(1,1000)"`, Options{}},
		{"openloop", `type="read" config="containers=u(1,32);objects=u(1,1000)"`, Options{OpenLoop: &Rate{PerSecond: 1e9}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			const workers = 8
			text := workload(fmt.Sprintf(`<work name="m" workers="%d" totalOps="%d"><operation %s/></work>`,
				workers, max(b.N, workers), c.operation))
			w, err := Read(strings.NewReader(text))
			if err != nil {
				b.Fatal(err)
			}
			p, err := MakePlan(w, store.All())
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			before := command.ProcessorTime()
			result, err := Run(context.Background(), p, c.options)
			if err != nil {
				b.Fatal(err)
			}
			n := result.Stages[0].Operations[0].Samples
			b.ReportMetric(float64((command.ProcessorTime()-before).Nanoseconds())/float64(n), "CPU-ns/op")
		})
	}
}
