package cosbench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// graceAfterEnd is what a request gets that a work's end overtook, and the same when the run is
// called off; COSBench's is the same for the former.
const (
	graceAfterEnd    = 11 * time.Second
	graceAfterCancel = 5 * time.Second
)

// liveStage is a stage while its works run.
type liveStage struct {
	engine   *engine
	result   *StageResult
	runs     []*workRun
	tallies  []*workTally
	series   series
	start    time.Time
	interval time.Duration
}

func (e *engine) runWorks(ctx context.Context, index int, s *StageResult) error {
	s.enter("booting")
	e.Events(e.stageEvent(s, "stage"))
	l := &liveStage{engine: e, result: s}
	s.enter("submitting")
	for _, work := range e.stages[index].works {
		run := &workRun{workPlan: work, window: windowOf(work.Work), pool: e.pool, stopping: make(chan struct{})}
		run.warn = func(text string) { e.Warn(fmt.Sprintf("stage %s, work %q: %s", s.ID, work.Name, text)) }
		l.runs = append(l.runs, run)
	}
	s.enter("authing")
	for _, run := range l.runs {
		if err := e.open(ctx, run, index); err != nil {
			_ = closeAll(l.runs) // the first error says more
			if ctx.Err() != nil {
				s.enter("aborted")
				return nil
			}
			s.enter("terminated")
			return err
		}
	}
	s.enter("launching")
	for _, run := range l.runs {
		l.tallies = append(l.tallies, newWorkTally(run))
	}
	before := processorTime()
	err := l.run(ctx)
	s.Processor = processorTime() - before
	s.enter("closing")
	if failed := closeAll(l.runs); failed != nil {
		e.Warn(fmt.Sprintf("stage %s: closing connections: %v", s.ID, failed))
	}
	l.finish()
	switch {
	case ctx.Err() != nil:
		s.enter("aborted")
		return nil
	case err != nil:
		s.enter("terminated")
		return err
	case !l.acceptable():
		s.enter("failed")
	default:
		s.enter("completed")
	}
	return nil
}

// begin is when the stage begins: at once, or, where it measures for a time, at the run's next whole
// second, so that no second of the series lies half inside the window.
func (l *liveStage) begin(ctx context.Context) time.Time {
	now, started := time.Now(), l.engine.result.Started
	for _, run := range l.runs {
		if run.Runtime > 0 {
			whole := now.Sub(started).Truncate(time.Second) + time.Second
			select {
			case <-time.After(whole - now.Sub(started)):
			case <-ctx.Done():
			}
			return started.Add(whole)
		}
	}
	return now
}

// run has all workers work, and measures meanwhile.
func (l *liveStage) run(ctx context.Context) error {
	// Requests outlive the run's end for a moment, so that what has begun can end.
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	l.start = l.begin(ctx)
	l.series = series{stage: l.result.ID, offset: l.start.Sub(l.engine.result.Started)}
	l.interval = forever
	for _, run := range l.runs {
		run.start = l.start
		l.interval = min(l.interval, time.Duration(run.Interval)*time.Second)
	}
	l.result.enter("running")
	l.engine.Events(l.engine.stageEvent(l.result, "stage"))
	var once sync.Once
	stop := func() { // all works, for a worker failed or the run is called off
		once.Do(func() {
			for _, run := range l.runs {
				run.stop.Store(true)
				close(run.stopping)
			}
			time.AfterFunc(graceAfterCancel, cancel)
		})
	}
	defer context.AfterFunc(ctx, stop)()
	ended := make(chan error)
	for _, run := range l.runs {
		go func() { ended <- run.work(requests, stop) }()
	}
	failed := l.measure(ended)
	stop()
	return failed
}

// work runs the workers of one work until all have ended.
func (r *workRun) work(ctx context.Context, stop func()) error {
	if r.window.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.window.timeout+graceAfterEnd)
		defer cancel()
	}
	var all sync.WaitGroup
	errs := make([]error, len(r.workers))
	for i, w := range r.workers {
		all.Go(func() {
			if errs[i] = w.loop(ctx); errs[i] != nil {
				stop()
			}
		})
	}
	all.Wait()
	r.ended.Store(true)
	return errors.Join(errs...)
}

// processorTime is what this process has taken of all processors.
func processorTime() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// measure takes the workers' samples four times a second, makes the series' rows and tells how far
// it is, until all works have ended.
func (l *liveStage) measure(ended <-chan error) error {
	ticks := time.NewTicker(250 * time.Millisecond)
	defer ticks.Stop()
	var failed []error
	nextRow, nextEvent := l.interval, time.Second
	for running := len(l.runs); running > 0; {
		select {
		case err := <-ended:
			running--
			failed = append(failed, err)
		case <-ticks.C:
			now := time.Since(l.start)
			l.collect(now)
			if now >= nextRow {
				l.addRow()
				nextRow += l.interval
			}
			if now >= nextEvent {
				l.tell(now)
				nextEvent += time.Second
			}
		}
	}
	now := time.Since(l.start)
	l.collect(now)
	l.addRow()
	return errors.Join(failed...)
}

func (l *liveStage) collect(now time.Duration) {
	for _, t := range l.tallies {
		t.collect(&l.series)
	}
	l.series.close(now, false)
}

func (l *liveStage) addRow() {
	row := Row{At: time.Now()}
	for _, t := range l.tallies {
		row.Metrics = append(row.Metrics, t.row()...)
	}
	l.result.Rows = append(l.result.Rows, row)
}

// finish puts together what was measured.
func (l *liveStage) finish() {
	l.series.close(0, true)
	l.result.Seconds = l.series.done
	for _, t := range l.tallies {
		l.result.Operations = append(l.result.Operations, t.results()...)
		if t.run.arrivals != nil {
			if l.result.Unfinished == nil {
				l.result.Unfinished = map[string]int{}
			}
			l.result.Unfinished[t.run.Name] += t.run.arrivals.all() - t.intended // names need not be unique
		}
	}
}

// acceptable says whether every work kept to its acceptable failure ratio.
func (l *liveStage) acceptable() bool {
	fine := true
	for _, t := range l.tallies {
		failures, all := failed(t.results())
		if !acceptable(failures, all, t.run.AFR) {
			l.engine.Warn(fmt.Sprintf("stage %s, work %q: %d of %d requests failed, more than its afr=%d per million",
				l.result.ID, t.run.Name, failures, all, t.run.AFR))
			fine = false
		}
	}
	return fine
}
