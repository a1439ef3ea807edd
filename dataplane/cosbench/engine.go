package cosbench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"hotbed/dataplane/cosbench/access"
)

// Rate has operations begin at times of their own instead of when the worker is free: the open
// loop. It is that of each normal work.
type Rate struct {
	PerSecond float64
	Poisson   bool // else at equal distances
}

// Options are how a plan is run.
type Options struct {
	Seed      uint64
	OpenLoop  *Rate    // nil: COSBench's closed loop
	Stages    []string // only these, by name or id; none: all
	Triggers  string   // folder of the scripts that triggers name
	Events    func(Event)
	Warn      func(string)
	Submitted time.Time
}

// Moment is when something got into a state.
type Moment struct {
	State string
	At    time.Time
}

// StageResult is what a stage came to.
type StageResult struct {
	*Stage
	State      string // completed, failed, terminated or aborted
	History    []Moment
	Operations []OperationResult
	Rows       []Row
	Seconds    []Second
	Processor  time.Duration  // what the driver took while the works ran
	Unfinished map[string]int // by work: requests of the open loop that the window's end overtook
}

func (s *StageResult) enter(state string) {
	s.State = state
	s.History = append(s.History, Moment{state, time.Now()})
}

// Row is one row of a stage's series: what each operation did in an interval.
type Row struct {
	At      time.Time
	Metrics []Metrics // an operation each
}

// Result is what a run came to.
type Result struct {
	*Workload
	State                       string // finished, failed, terminated or cancelled
	History                     []Moment
	Submitted, Started, Stopped time.Time
	Stages                      []*StageResult
	Seed                        uint64
	OpenLoop                    *Rate
}

// Measured is false if no stage got as far as to send a request.
func (r *Result) Measured() bool {
	for _, s := range r.Stages {
		if slices.ContainsFunc(s.History, func(m Moment) bool { return m.State == "running" }) {
			return true
		}
	}
	return false
}

func (r *Result) enter(state string) {
	r.State = state
	r.History = append(r.History, Moment{state, time.Now()})
}

// engine runs a plan.
type engine struct {
	*Plan
	Options
	result *Result
	pool   *pool
}

// Run does a plan's stages one after the other. What could be measured comes back, whatever
// happened; an error says why the run ended before its end. When the context ends, nothing new is
// begun and what has begun gets a few seconds.
func Run(ctx context.Context, plan *Plan, options Options) (*Result, error) {
	e := &engine{Plan: plan, Options: options}
	if e.Events == nil {
		e.Events = func(Event) {}
	}
	if e.Warn == nil {
		e.Warn = func(string) {}
	}
	if e.Submitted.IsZero() {
		e.Submitted = time.Now()
	}
	if err := plan.Check(options); err != nil {
		return nil, err
	}
	e.pool = newPool(e.random("contents", 0, 0))
	e.result = &Result{Workload: plan.Workload, Submitted: e.Submitted, Started: time.Now(), Seed: e.Seed,
		OpenLoop: e.OpenLoop, History: []Moment{{"queuing", e.Submitted}}}
	for i := range plan.stages {
		if e.chosen(plan.stages[i].Stage) {
			e.result.Stages = append(e.result.Stages, &StageResult{Stage: plan.stages[i].Stage,
				State: "waiting", History: []Moment{{"waiting", e.Submitted}}})
		}
	}
	e.result.enter("processing")
	err := e.runStages(ctx)
	e.result.Stopped = time.Now()
	return e.result, err
}

// Check refuses options that do not fit the plan.
func (p *Plan) Check(options Options) error {
	e := &engine{Plan: p, Options: options}
	for _, name := range options.Stages {
		found := false
		for _, s := range e.stages {
			found = found || s.Name == name || s.ID == name
		}
		if !found {
			return fmt.Errorf("there is no stage %q in the workload", name)
		}
	}
	if err := e.checkTriggers(); err != nil {
		return err
	}
	for _, s := range e.stages {
		for _, w := range s.works {
			for _, o := range w.operations {
				if e.OpenLoop != nil && w.Type == Normal && (o.act == nil || actions[o.Type] == nil) {
					return o.element.fault("the operation %s is many requests, it cannot be done at a rate; "+
						"run this workload in the closed loop", o.Type)
				}
			}
		}
	}
	return nil
}

func (e *engine) chosen(s *Stage) bool {
	for _, name := range e.Stages {
		if s.Name == name || s.ID == name {
			return true
		}
	}
	return len(e.Stages) == 0
}

// seed is one of a stream's own: the same for the same run, whatever else runs.
func (e *engine) seed(what string, stage, number int) [2]uint64 {
	var mixed uint64 = 14695981039346656037 // FNV-1a
	for _, b := range []byte(fmt.Sprintf("%s %d %d", what, stage, number)) {
		mixed = (mixed ^ uint64(b)) * 1099511628211
	}
	return [2]uint64{e.Seed, mixed}
}

func (e *engine) random(what string, stage, number int) *rand.Rand {
	s := e.seed(what, stage, number)
	return rand.New(rand.NewPCG(s[0], s[1]))
}

// errStage is a stage that could not go on; COSBench ends the workload then.
type errStage struct {
	id  string
	err error
}

func (e *errStage) Error() string { return fmt.Sprintf("stage %s: %v", e.id, e.err) }

func (e *errStage) Unwrap() error { return e.err }

func (e *engine) runStages(ctx context.Context) error {
	var ended error
	states := map[string]int{}
	e.trigger(ctx, e.Trigger, true)
	number := 0
	for i := range e.stages {
		if !e.chosen(e.stages[i].Stage) {
			continue
		}
		s := e.result.Stages[number]
		number++
		if ended == nil && ctx.Err() != nil {
			ended = ctx.Err()
		}
		if ended != nil {
			s.enter("aborted")
		} else if err := e.runStage(ctx, i, s); err != nil {
			ended = &errStage{s.ID, err}
		}
		states[s.State]++
		if len(s.History) > 2 { // else it never began
			e.Events(e.stageEvent(s, "stage"))
		}
	}
	e.trigger(context.WithoutCancel(ctx), e.Trigger, false)
	switch {
	case ctx.Err() != nil && states["aborted"] > 0:
		e.result.enter("cancelled")
	case ended != nil:
		e.result.enter("terminated")
	case states["failed"] > 0:
		e.result.enter("failed")
	default:
		e.result.enter("finished")
	}
	return ended
}

// runStage runs a stage's works, then sleeps its closuredelay.
func (e *engine) runStage(ctx context.Context, index int, s *StageResult) error {
	if !s.Sleeps() {
		e.trigger(ctx, s.Trigger, true)
		err := e.runWorks(ctx, index, s)
		e.trigger(context.WithoutCancel(ctx), s.Trigger, false)
		if err != nil || s.State == "aborted" {
			return err
		}
	}
	if s.ClosureDelay == 0 {
		return nil
	}
	after := s.State
	s.enter("sleeping")
	e.Events(e.stageEvent(s, "stage"))
	timer := time.NewTimer(time.Duration(s.ClosureDelay) * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		s.enter("aborted")
		return nil
	}
	if after == "waiting" {
		after = "completed" // it only slept
	}
	s.enter(after)
	return nil
}

// open logs in and opens a connection for each worker.
func (e *engine) open(ctx context.Context, run *workRun, stage int) error {
	if run.Type == Delay {
		return nil
	}
	session, err := run.auth.Open(ctx, run.authConfig)
	for attempt := 1; err != nil && attempt < run.attempts && access.KindOf(err) != access.Auth; attempt++ {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
		session, err = run.auth.Open(ctx, run.authConfig)
	}
	if err != nil {
		return fmt.Errorf("work %q could not log in: %w", run.Name, err)
	}
	for i := range run.Workers {
		w := newWorker(run, i+1, e.seed("worker", stage<<16|run.index, i+1))
		if w.store, err = run.store.Open(run.storeConfig, session); err != nil {
			return fmt.Errorf("work %q could not open its storage: %w", run.Name, err)
		}
		run.workers = append(run.workers, w)
	}
	if e.OpenLoop != nil && run.Type == Normal {
		run.arrivals = newArrivals(e.OpenLoop, run.window, e.seed("arrivals", stage, run.index))
	}
	return nil
}

func closeAll(runs []*workRun) error {
	var failed []error
	for _, run := range runs {
		for _, w := range run.workers {
			failed = append(failed, w.store.Close())
		}
	}
	return errors.Join(failed...)
}
