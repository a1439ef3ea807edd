package cosbench

import (
	"time"
)

// Event is one line of live progress.
type Event struct {
	Event  string   `json:"event"` // stage, snapshot or done
	Stage  string   `json:"stage,omitempty"`
	Work   string   `json:"work,omitempty"`
	State  string   `json:"state,omitempty"`
	T      float64  `json:"t_s"`    // since the run's start
	Ops    int64    `json:"ops"`    // of a snapshot: in the second before; else in the stage's window
	Bytes  int64    `json:"bytes"`  // likewise
	Errors int64    `json:"errors"` // likewise
	Mean   *float64 `json:"mean_s"` // response time; null: nothing succeeded
	P95    *float64 `json:"p95_s"`
	ETA    *float64 `json:"eta_s"` // until the run's end; null: not known
	Folder string   `json:"archive,omitempty"`
	Error  string   `json:"error,omitempty"`
}

func seconds(d time.Duration, known bool) *float64 {
	if !known {
		return nil
	}
	value := d.Seconds()
	return &value
}

// stageEvent tells in which state a stage is.
func (e *engine) stageEvent(s *StageResult, event string) Event {
	result := Event{Event: event, Stage: s.ID, State: s.State, T: time.Since(e.result.Started).Seconds()}
	var all OperationResult
	for i := range s.Operations {
		o := &s.Operations[i]
		result.Ops += o.Samples
		result.Bytes += o.Bytes
		result.Errors += o.All - o.Samples
		all.Histogram.Merge(&o.Histogram)
	}
	if n := all.Histogram.Count(); n > 0 {
		result.Mean = seconds(all.Histogram.Sum()/time.Duration(n), true)
		result.P95 = seconds(all.Histogram.Quantile(0.95), true)
	}
	return result
}

// tell sends a snapshot of each work that still runs.
func (l *liveStage) tell(now time.Duration) {
	eta, known := l.eta(now)
	for _, run := range l.runs {
		if run.ended.Load() {
			continue
		}
		second := l.series.latest(run.Work, now)
		l.engine.Events(Event{Event: "snapshot", Stage: l.result.ID, Work: run.Name, State: l.result.State,
			T: (l.series.offset + now).Seconds(), Ops: second.Ops, Bytes: second.Bytes, Errors: second.Errors,
			Mean: seconds(second.Mean, second.Ops > 0), P95: seconds(second.P95, second.Ops > 0),
			ETA: seconds(eta, known)})
	}
}

// eta is how long the run still takes: what the works of this and of later stages say of their
// times. What ends by its number of operations is taken at its pace so far, and for nothing where
// it has not begun.
func (l *liveStage) eta(now time.Duration) (time.Duration, bool) {
	var left time.Duration
	known := true
	for i, run := range l.runs {
		if run.ended.Load() {
			continue
		}
		work, ok := l.tallies[i].left(now)
		left, known = max(left, work), known && ok
	}
	later := false
	for _, s := range l.engine.result.Stages {
		if later {
			left += s.span()
		}
		if s == l.result {
			later = true
			left += time.Duration(s.ClosureDelay) * time.Second
		}
	}
	return left, known
}

// left is how long a work still takes.
func (t *workTally) left(now time.Duration) (time.Duration, bool) {
	if timeout := t.run.window.timeout; timeout > 0 {
		return max(timeout-now, 0), true
	}
	if t.run.Type != Normal {
		return 0, false
	}
	var ops, bytes int64
	for i := range t.operations {
		for j := range t.operations[i].total {
			ops += t.operations[i].total[j].all
			bytes += t.operations[i].total[j].bytes
		}
	}
	done := max(share(ops, int64(t.run.TotalOps)), share(bytes, t.run.TotalBytes))
	if done <= 0 {
		return 0, false
	}
	return time.Duration(float64(now) * max(1/done-1, 0)), true
}

func share(done, all int64) float64 {
	if all == 0 {
		return 0
	}
	return float64(done) / float64(all)
}

// span is how long a stage takes, as far as its XML says.
func (s *StageResult) span() time.Duration {
	var longest time.Duration
	for i := range s.Works {
		longest = max(longest, windowOf(&s.Works[i]).timeout)
	}
	return longest + time.Duration(s.ClosureDelay)*time.Second
}

// Event is the last line of progress.
func (r *Result) Event(folder string) Event {
	done := Event{Event: "done", State: r.State, T: r.Stopped.Sub(r.Started).Seconds(), Folder: folder}
	for _, s := range r.Stages {
		for i := range s.Operations {
			done.Ops += s.Operations[i].Samples
			done.Bytes += s.Operations[i].Bytes
			done.Errors += s.Operations[i].All - s.Operations[i].Samples
		}
	}
	return done
}
