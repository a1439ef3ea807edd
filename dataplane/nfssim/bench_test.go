package nfssim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hotbed/dataplane/enforcer"
)

// BenchmarkQueue is one device behind an enforcer, with customers read from a trace.
func BenchmarkQueue(b *testing.B) {
	for _, policy := range []enforcer.Policy{enforcer.None, enforcer.PM} {
		b.Run(string(policy), func(b *testing.B) {
			var rows strings.Builder
			for _, r := range poisson(1, b.N, 12500*us, 10000*us) {
				fmt.Fprintf(&rows, "%d,%x,DiskRead\n", r.At.Nanoseconds(), r.Size)
			}
			s := one(policy, "w")
			s.Workloads[0].Trace = filepath.Join(b.TempDir(), "w.csv")
			if err := os.WriteFile(s.Workloads[0].Trace, []byte(rows.String()), 0o600); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			r, err := Run(s, FromFile, func(float64) {})
			if err != nil || r.Workloads[0].Whole.Requests != uint64(b.N) {
				b.Fatal(err)
			}
			b.ReportMetric(r.CPU/float64(b.N)*1e9, "cpu-ns/op")
		})
	}
}

// BenchmarkReplies sends 64 KiB through two links each way.
func BenchmarkReplies(b *testing.B) {
	s := connected(one(enforcer.PM, "w"), 125e6, enforcer.PM)
	trace := poisson(1, b.N, 1000*us, 0)
	for i := range trace {
		trace[i].Size, trace[i].Read = 65536, true
	}
	b.ResetTimer()
	mustRun(b, s, listed{"w": trace})
}
