package cosbench

import (
	"fmt"
	"strconv"
	"time"
)

// histogramFile is histograms.json: what COSBench does not keep. Times in seconds, histograms in
// nanoseconds.
type histogramFile struct {
	ID        string           `json:"id"`
	Workload  string           `json:"workload"`
	State     string           `json:"state"`
	StartedAt float64          `json:"started_unix_s"`
	StoppedAt float64          `json:"stopped_unix_s"`
	Seed      uint64           `json:"seed"`
	Loop      string           `json:"loop"`             // closed or open
	Rate      float64          `json:"rate_s,omitempty"` // of the open loop, 1/s
	Arrivals  string           `json:"arrivals,omitempty"`
	Stages    []stageHistogram `json:"stages"`
}

type stageHistogram struct {
	Stage      string               `json:"stage"`
	State      string               `json:"state"`
	StartedAt  float64              `json:"started_unix_s"` // when its works began to run
	StoppedAt  float64              `json:"stopped_unix_s"`
	Processor  float64              `json:"driver_cpu_s"` // of this process, while the works ran
	Unfinished map[string]int       `json:"unfinished,omitempty"`
	Operations []operationHistogram `json:"operations"`
}

type operationHistogram struct {
	Work       string           `json:"work"`
	Operation  string           `json:"operation"`
	Type       string           `json:"type"`
	Begin      float64          `json:"window_begin_s"` // since the stage's start
	End        *float64         `json:"window_end_s"`   // null: until its last request
	Ops        int64            `json:"ops"`
	Bytes      int64            `json:"bytes"`
	Errors     map[string]int64 `json:"errors"`
	Throughput float64          `json:"throughput_s"`
	Bandwidth  float64          `json:"bandwidth_bytes_s"`
	Mean       *float64         `json:"mean_s"`
	Min        *float64         `json:"min_s"`
	Max        *float64         `json:"max_s"`
	P50        *float64         `json:"p50_s"`
	P95        *float64         `json:"p95_s"`
	P99        *float64         `json:"p99_s"`
	P999       *float64         `json:"p999_s"`
	// Buckets are rows of low_ns, high_ns and count: counts of latencies of low to below high. In open
	// loop latencies are from when the request was to begin, and all count that were to begin in the
	// window; else those that COSBench's rule counts.
	Columns [3]string   `json:"bucket_columns"`
	Buckets [][3]uint64 `json:"buckets"`
}

func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

func histograms(id string, r *Result) histogramFile {
	file := histogramFile{ID: id, Workload: r.Name, State: r.State, StartedAt: unix(r.Started),
		StoppedAt: unix(r.Stopped), Seed: r.Seed, Loop: "closed"}
	if r.OpenLoop != nil {
		file.Loop, file.Rate, file.Arrivals = "open", r.OpenLoop.PerSecond, "constant"
		if r.OpenLoop.Poisson {
			file.Arrivals = "poisson"
		}
	}
	for _, s := range r.Stages {
		stage := stageHistogram{Stage: s.ID, State: s.State, Unfinished: s.Unfinished,
			Processor:  s.Processor.Seconds(),
			Operations: []operationHistogram{}}
		for _, m := range s.History {
			if m.State == "running" {
				stage.StartedAt = unix(m.At)
			}
			stage.StoppedAt = unix(m.At)
		}
		for i := range s.Operations {
			stage.Operations = append(stage.Operations, operationHistogramOf(&s.Operations[i]))
		}
		file.Stages = append(file.Stages, stage)
	}
	return file
}

func operationHistogramOf(o *OperationResult) operationHistogram {
	h, w := &o.Histogram, windowOf(o.Work)
	some := h.Count() > 0
	result := operationHistogram{Work: o.Work.Name, Operation: o.Label(), Type: o.Type, Begin: w.begin.Seconds(),
		End: seconds(w.end, w.end != forever), Ops: int64(h.Count()), Bytes: o.Bytes, Errors: map[string]int64{},
		Throughput: o.Throughput, Bandwidth: o.Bandwidth,
		Min: seconds(h.Min(), some), Max: seconds(h.Max(), some), P50: seconds(h.Quantile(0.50), some),
		P95: seconds(h.Quantile(0.95), some), P99: seconds(h.Quantile(0.99), some),
		P999: seconds(h.Quantile(0.999), some), Columns: [3]string{"low_ns", "high_ns", "count"}, Buckets: [][3]uint64{}}
	if some {
		mean := h.Mean()
		result.Mean = &mean
	}
	for i, n := range o.Failures {
		if n > 0 {
			result.Errors[failureKinds[i]] = n
		}
	}
	for _, b := range h.Buckets() {
		result.Buckets = append(result.Buckets, [3]uint64{uint64(b.Low), uint64(b.High), b.Count})
	}
	return result
}

// seriesTable is series.csv: what ended in each second of the run.
func seriesTable(r *Result) func(*table) {
	plain := func(d time.Duration, some bool) string {
		if !some {
			return ""
		}
		return fmt.Sprintf("%.9f", d.Seconds())
	}
	return func(t *table) {
		t.row("second", "stage", "op", "tenant", "ops", "bytes", "errors", "mean_s", "p95_s", "work", "measured")
		for _, s := range r.Stages {
			for _, at := range s.Seconds {
				t.row(count(at.Second), at.Stage, at.Label, r.Name, count(at.Ops), count(at.Bytes), count(at.Errors),
					plain(at.Mean, at.Ops > 0), plain(at.P95, at.Ops > 0), at.Work, strconv.FormatBool(at.Measured))
			}
		}
	}
}
