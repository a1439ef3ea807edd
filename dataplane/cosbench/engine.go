package cosbench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"hotbed/dataplane/cosbench/store"
	"hotbed/dataplane/internal/command"
)

// Rate is an open loop: operations of each normal work begin at scheduled times instead of when a
// worker is free.
type Rate struct {
	PerSecond float64
	Poisson   bool // else at equal distances
}

// Options change how a plan is run.
type Options struct {
	Seed     uint64
	OpenLoop *Rate    // nil: COSBench's closed loop
	Stages   []string // only these, by name or id; empty: all
	Events   func(Event)
	Warn     func(string)
}

// Moment is the time at which something entered a state.
type Moment struct {
	State string
	At    time.Time
}

// history is a sequence of states.
type history struct {
	State   string
	History []Moment
}

func (h *history) enter(state string) {
	h.State = state
	h.History = append(h.History, Moment{state, time.Now()})
}

// StageResult is the result of a stage. Its State is completed, failed, terminated or aborted.
type StageResult struct {
	*Stage
	history
	Operations []OperationResult
	Rows       []Row
	Seconds    []Second
	Processor  time.Duration  // CPU time of the driver while the works ran
	Unfinished map[string]int // by work: requests of the open loop that had not ended with the window
}

// Row is one row of a stage's series.
type Row struct {
	At      time.Time
	Metrics []Metrics // one per operation, of the interval before
}

// Result is the result of a run. Its State is finished, failed, terminated or cancelled.
type Result struct {
	*Workload
	history
	Submitted, Started, Stopped time.Time
	Stages                      []*StageResult
	Seed                        uint64
	OpenLoop                    *Rate
}

// Measured is false if no stage got as far as to send a request.
func (r *Result) Measured() bool {
	return slices.ContainsFunc(r.Stages, func(s *StageResult) bool {
		return slices.ContainsFunc(s.History, func(m Moment) bool { return m.State == "running" })
	})
}

// engine runs a plan.
type engine struct {
	*Plan
	Options
	result *Result
	pool   *pool
}

// Run runs a plan's stages one after another. It always returns what was measured; an error is the
// reason for an early stop. When the context ends, nothing new begins and requests in progress get
// a few seconds.
func Run(ctx context.Context, plan *Plan, options Options) (*Result, error) {
	e := &engine{Plan: plan, Options: options}
	if e.Events == nil {
		e.Events = func(Event) {}
	}
	if e.Warn == nil {
		e.Warn = func(string) {}
	}
	if err := plan.Check(options); err != nil {
		return nil, err
	}
	submitted := time.Now()
	e.pool = newPool(e.random("contents", 0, 0))
	e.result = &Result{Workload: plan.Workload, Submitted: submitted, Started: time.Now(), Seed: e.Seed,
		OpenLoop: e.OpenLoop, history: history{History: []Moment{{"queuing", submitted}}}}
	for i := range plan.stages {
		if e.chosen(plan.stages[i].Stage) {
			e.result.Stages = append(e.result.Stages, &StageResult{Stage: plan.stages[i].Stage,
				history: history{"waiting", []Moment{{"waiting", submitted}}}})
		}
	}
	e.result.enter("processing")
	err := e.runStages(ctx)
	e.result.Stopped = time.Now()
	return e.result, err
}

// Check returns an error for options that do not fit the plan.
func (p *Plan) Check(options Options) error {
	for _, name := range options.Stages {
		if !slices.ContainsFunc(p.stages, func(s stagePlan) bool { return s.Name == name || s.ID == name }) {
			return fmt.Errorf("there is no stage %q in the workload", name)
		}
	}
	for _, s := range p.stages {
		for _, w := range s.works {
			for _, o := range w.operations {
				if options.OpenLoop != nil && w.Type == Normal && actions[o.Type] == nil {
					return o.element.fault("the operation %s is many requests, it cannot be done at a rate; "+
						"run this workload in the closed loop", o.Type)
				}
			}
		}
	}
	return nil
}

func (e *engine) chosen(s *Stage) bool {
	return len(e.Stages) == 0 || slices.Contains(e.Stages, s.Name) || slices.Contains(e.Stages, s.ID)
}

// seed returns a stream's own seed, which does not depend on other streams of the run.
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

func (e *engine) runStages(ctx context.Context) error {
	var ended error
	states := map[string]int{}
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
			ended = fmt.Errorf("stage %s: %w", s.ID, err) // COSBench ends the workload then
		}
		states[s.State]++
		if len(s.History) > 2 { // else it never began
			e.report(s)
		}
	}
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
		if err := e.runWorks(ctx, index, s); err != nil || s.State == "aborted" {
			return err
		}
	}
	if s.ClosureDelay == 0 {
		return nil
	}
	after := s.State
	s.enter("sleeping")
	e.report(s)
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
	session, err := run.login(ctx)
	for attempt := 1; err != nil && attempt < run.attempts && store.KindOf(err) != store.Auth; attempt++ {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
		session, err = run.login(ctx)
	}
	if err != nil {
		return fmt.Errorf("work %q could not log in: %w", run.Name, err)
	}
	for i := range run.Workers {
		w := newWorker(run, i+1, e.seed("worker", stage<<16|run.index, i+1))
		if w.store, err = run.workPlan.open(session); err != nil {
			return fmt.Errorf("work %q could not open its storage: %w", run.Name, err)
		}
		run.workers = append(run.workers, w)
	}
	if e.OpenLoop != nil && run.Type == Normal {
		run.arrivals = newArrivals(e.OpenLoop, run.window, e.seed("arrivals", stage, run.index))
	}
	return nil
}

func closeAll(runs []*workRun) {
	for _, run := range runs {
		for _, w := range run.workers {
			w.store.Close()
		}
	}
}

// The time that requests get to end after the end of their work (as in COSBench), and after the run
// is cancelled.
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
	e.report(s)
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
			closeAll(l.runs)
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
	before := command.ProcessorTime()
	err := l.run(ctx)
	s.Processor = command.ProcessorTime() - before
	s.enter("closing")
	closeAll(l.runs)
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

// begin returns when the stage begins: at once, or, if it has a runtime, at the run's next whole
// second. So no second of the series is partly inside the window.
func (l *liveStage) begin(ctx context.Context) time.Time {
	now, started := time.Now(), l.engine.result.Started
	if !slices.ContainsFunc(l.runs, func(run *workRun) bool { return run.Runtime > 0 }) {
		return now
	}
	whole := now.Sub(started).Truncate(time.Second) + time.Second
	select {
	case <-time.After(whole - now.Sub(started)):
	case <-ctx.Done():
	}
	return started.Add(whole)
}

// run runs all workers and measures meanwhile.
func (l *liveStage) run(ctx context.Context) error {
	// Requests may outlive the run briefly, so that requests in progress can end.
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
	l.engine.report(l.result)
	var once sync.Once
	stop := func() { // stops all works: a worker failed, or the run was cancelled
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
	return errors.Join(errs...)
}

// measure takes the workers' samples four times a second, makes the series' rows and sends progress,
// until all works have ended.
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
				l.report(now)
				nextEvent += time.Second
			}
		}
	}
	l.collect(time.Since(l.start))
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

// finish collects what was measured.
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

// acceptable is true if every work kept to its acceptable failure ratio.
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

// Event is one line of live progress.
type Event struct {
	Event  string   `json:"event"` // stage, snapshot or done
	Stage  string   `json:"stage,omitempty"`
	State  string   `json:"state,omitempty"`
	T      float64  `json:"t_s"` // since the run's start
	Ops    int64    `json:"ops"` // in the stage's window so far; of done: in all stages'
	Bytes  int64    `json:"bytes"`
	Errors int64    `json:"errors"`
	ETA    *float64 `json:"eta_s"` // until the run's end; null: unknown
	Folder string   `json:"archive,omitempty"`
	Error  string   `json:"error,omitempty"`
}

func (v *Event) add(results []OperationResult) {
	for i := range results {
		v.Ops += results[i].Samples
		v.Bytes += results[i].Bytes
		v.Errors += results[i].All - results[i].Samples
	}
}

// seconds returns a known time in seconds, else nil.
func seconds(d time.Duration, known bool) *float64 {
	if !known {
		return nil
	}
	value := d.Seconds()
	return &value
}

// report sends an event with the state of a stage.
func (e *engine) report(s *StageResult) {
	event := Event{Event: "stage", Stage: s.ID, State: s.State, T: time.Since(e.result.Started).Seconds()}
	event.add(s.Operations)
	e.Events(event)
}

// Event returns the last line of progress.
func (r *Result) Event(folder string) Event {
	done := Event{Event: "done", State: r.State, T: r.Stopped.Sub(r.Started).Seconds(), Folder: folder}
	for _, s := range r.Stages {
		done.add(s.Operations)
	}
	return done
}

// report sends a snapshot of the running works. The time left is known if they have a runtime; later
// stages that end by a number of operations count as zero.
func (l *liveStage) report(now time.Duration) {
	left := l.result.span()
	event := Event{Event: "snapshot", Stage: l.result.ID, State: l.result.State,
		T: (l.series.offset + now).Seconds()}
	for _, t := range l.tallies {
		event.add(t.results())
	}
	all := l.engine.result.Stages
	for _, s := range all[slices.Index(all, l.result)+1:] {
		left += s.span()
	}
	known := slices.ContainsFunc(l.runs, func(run *workRun) bool { return run.Runtime > 0 })
	event.ETA = seconds(max(left-now, 0), known)
	l.engine.Events(event)
}

// span returns a stage's duration, as far as its XML gives it.
func (s *StageResult) span() time.Duration {
	var longest time.Duration
	for i := range s.Works {
		longest = max(longest, windowOf(&s.Works[i]).timeout)
	}
	return longest + time.Duration(s.ClosureDelay)*time.Second
}
