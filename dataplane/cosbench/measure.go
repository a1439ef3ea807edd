package cosbench

import (
	"time"

	"hotbed/dataplane/sim"
)

// COSBench's histogram: buckets of 10 ms up to 500 s, and one for all above.
const (
	bucketWidth = 10 * time.Millisecond
	lastBucket  = 50_000
)

// bucketIndex returns the bucket of a response time.
func bucketIndex(response time.Duration) int { return int(min(response/bucketWidth, lastBucket)) }

// bucketEdge returns a bucket's upper edge in milliseconds, as COSBench prints it.
func bucketEdge(index int) int64 {
	if index >= lastBucket {
		return 1<<63 - 1
	}
	return int64(index+1) * bucketWidth.Milliseconds()
}

// percentages are COSBench's reported percentiles.
var percentages = [6]float64{0.60, 0.80, 0.90, 0.95, 0.99, 1}

// Percentiles returns the upper edges in milliseconds of the buckets in which the running count
// reaches int(n*p). For few samples this is the first bucket, even if it is empty, as in COSBench.
// It returns false for no samples.
func Percentiles(buckets []int64) ([6]int64, bool) {
	var total, running int64
	for _, count := range buckets {
		total += count
	}
	var edges [6]int64
	if total == 0 {
		return edges, false
	}
	found := 0
	for i, count := range buckets {
		running += count
		for found < len(percentages) && running >= int64(float64(total)*percentages[found]) {
			edges[found] = bucketEdge(i)
			found++
		}
	}
	return edges, true
}

// mark sums one worker's requests of one operation.
type mark struct {
	succeeded, all, bytes int64
	response, transfer    time.Duration // sums over successful requests
}

func (m *mark) add(s *sample) {
	m.all++
	if s.failed == 0 {
		m.succeeded++
		m.bytes += s.bytes
		m.response += s.response
		m.transfer += s.transfer
	}
}

// Metrics are COSBench's numbers for one operation: sums over workers, each with its own window.
type Metrics struct {
	Samples    int64 // successful requests
	All        int64 // successful and failed requests
	Bytes      int64
	Workers    int
	Response   time.Duration // mean
	Transfer   time.Duration // mean
	Throughput float64       // 1/s
	Bandwidth  float64       // bytes/s
}

// merge adds the marks of workers; windows are the times in which each was busy.
func merge(marks []mark, windows []time.Duration) Metrics {
	m := Metrics{Workers: len(marks)}
	var response, transfer time.Duration
	for i := range marks {
		mark := &marks[i]
		m.Samples += mark.succeeded
		m.All += mark.all
		m.Bytes += mark.bytes
		response += mark.response
		transfer += mark.transfer
		if seconds := windows[i].Seconds(); seconds > 0 {
			m.Throughput += float64(mark.succeeded) / seconds
			m.Bandwidth += float64(mark.bytes) / seconds
		}
	}
	if m.Samples > 0 {
		m.Response = response / time.Duration(m.Samples)
		m.Transfer = transfer / time.Duration(m.Samples)
	}
	return m
}

// SuccessRatio returns the share of requests that succeeded; 0 if there were none.
func (m *Metrics) SuccessRatio() float64 {
	if m.All == 0 {
		return 0
	}
	return float64(m.Samples) / float64(m.All)
}

// OperationResult holds all measurements of one operation.
type OperationResult struct {
	*Operation
	Work  *Work
	Index int // of the work within its stage, from 1
	Metrics
	Buckets   []int64 // of 10 ms, by COSBench's rule
	Histogram sim.Histogram
	Failures  [8]int64 // by the index of their kind in failureKinds
}

// operationTally measures one operation of a work.
type operationTally struct {
	result  OperationResult
	total   []mark // inside the window, one per worker
	current []mark // since the last row of the stage's series, one per worker
}

// workTally measures a work, in one goroutine, from samples that it takes from the workers.
type workTally struct {
	run         *workRun
	operations  []operationTally
	first, last []time.Duration // of the samples inside the window, one per worker
	check       []time.Duration // the value of latest at the last row
	latest      []time.Duration // the end of each worker's latest sample
	intended    int             // requests of the open loop that began in the window and have ended
	spare       []sample
}

func newWorkTally(run *workRun) *workTally {
	n := run.Workers
	t := &workTally{run: run, first: make([]time.Duration, n), last: make([]time.Duration, n),
		check: make([]time.Duration, n), latest: make([]time.Duration, n),
		operations: make([]operationTally, 0, len(run.operations))} // its elements do not move
	for i := range t.first {
		t.first[i] = forever
	}
	for _, o := range run.operations {
		t.operations = append(t.operations, operationTally{total: make([]mark, n), current: make([]mark, n),
			result: OperationResult{Operation: o.Operation, Work: run.Work, Index: run.index,
				Buckets: make([]int64, lastBucket+1)}})
	}
	return t
}

// collect takes the samples of the workers since the last time.
func (t *workTally) collect(series *series) {
	for i, w := range t.run.workers {
		taken := w.take(t.spare)
		for j := range taken {
			t.add(i, &taken[j], series)
		}
		t.spare = taken
	}
}

// add measures one sample of a worker.
func (t *workTally) add(worker int, s *sample, series *series) {
	o := &t.operations[s.operation]
	o.current[worker].add(s)
	t.latest[worker] = max(t.latest[worker], s.end)
	series.add(&o.result, s)
	inside := t.run.window.holds(s)
	if inside {
		o.total[worker].add(s)
		t.first[worker] = min(t.first[worker], s.begin)
		t.last[worker] = max(t.last[worker], s.end)
		if s.failed == 0 {
			o.result.Buckets[bucketIndex(s.response)]++
		}
	}
	if t.run.arrivals != nil {
		// Every request with an intended begin in the window counts, however late it ended.
		inside = s.begin >= t.run.window.begin && s.begin < t.run.window.end
		if inside {
			t.intended++
		}
	}
	switch {
	case !inside:
	case s.failed > 0:
		o.result.Failures[s.failed-1]++
	default:
		o.result.Histogram.Add(s.response)
	}
}

// results returns the measurements of each operation.
func (t *workTally) results() []OperationResult {
	windows := make([]time.Duration, len(t.first))
	for i := range windows {
		windows[i] = t.last[i] - t.first[i]
	}
	results := make([]OperationResult, len(t.operations))
	for i := range t.operations {
		results[i] = t.operations[i].result
		results[i].Metrics = merge(t.operations[i].total, windows)
	}
	return results
}

// row returns the metrics since the last row and begins the next row. A worker's time is from its
// last request of one row to its last request of the next.
func (t *workTally) row() []Metrics {
	windows := make([]time.Duration, len(t.latest))
	for i := range windows {
		windows[i] = t.latest[i] - t.check[i]
		t.check[i] = t.latest[i]
	}
	metrics := make([]Metrics, len(t.operations))
	for i := range t.operations {
		metrics[i] = merge(t.operations[i].current, windows)
		clear(t.operations[i].current)
	}
	return metrics
}

// failed returns the numbers of failed requests and of all requests of a work.
func failed(results []OperationResult) (failures, all int64) {
	for i := range results {
		failures += results[i].All - results[i].Samples
		all += results[i].All
	}
	return failures, all
}

// acceptable applies COSBench's rule for the acceptable failure ratio, in whole numbers.
func acceptable(failures, all int64, afr int) bool { return failures <= all*int64(afr)/1_000_000 }

// Second counts the requests of one operation that ended within one second of the run.
type Second struct {
	Second   int64 // since the run's start
	Stage    string
	Work     string
	Label    string // the operation's
	Measured bool   // true if the whole second is inside the work's window
	Ops      int64  // successful
	Bytes    int64
	Errors   int64
	Mean     time.Duration // of successful requests; 0: there were none
	P95      time.Duration
}

// second is a Second that still grows.
type second struct {
	Second
	of        *OperationResult
	latencies sim.Histogram
}

// series holds the seconds of a stage, in order. A few stay open, because samples are taken from
// one worker after another.
type series struct {
	stage  string
	offset time.Duration // of the stage's start within the run
	open   []*second
	done   []Second
	spare  []*second
}

// openSeconds is the number of seconds for which a past second stays open: samples are collected
// more often than that.
const openSeconds = 3

func (s *series) add(o *OperationResult, taken *sample) {
	at := int64((s.offset + taken.end) / time.Second)
	cell := s.find(at, o)
	cell.Bytes += taken.bytes
	if taken.failed > 0 {
		cell.Errors++
		return
	}
	cell.latencies.Add(taken.response)
}

func (s *series) find(at int64, o *OperationResult) *second {
	for i := len(s.open) - 1; i >= 0; i-- {
		if cell := s.open[i]; cell.of == o && cell.Second.Second == at {
			return cell
		}
	}
	cell := &second{}
	if n := len(s.spare); n > 0 {
		cell, s.spare = s.spare[n-1], s.spare[:n-1]
		cell.latencies.Reset()
	}
	cell.of = o
	w := windowOf(o.Work)
	start := time.Duration(at)*time.Second - s.offset
	cell.Second = Second{Second: at, Stage: s.stage, Work: o.Work.Name, Label: o.Label(),
		Measured: start >= w.begin && (w.end == forever || start+time.Second <= w.end)}
	s.open = append(s.open, cell)
	return cell
}

// close ends the seconds that get no more samples: those before now (since the stage's start), or all.
func (s *series) close(now time.Duration, all bool) {
	before := int64((s.offset+now)/time.Second) - openSeconds
	kept := s.open[:0]
	for _, cell := range s.open {
		if all || cell.Second.Second < before {
			if cell.Ops = int64(cell.latencies.Count()); cell.Ops > 0 {
				cell.Mean = cell.latencies.Sum() / time.Duration(cell.Ops)
				cell.P95 = cell.latencies.Quantile(0.95)
			}
			s.done = append(s.done, cell.Second)
			s.spare = append(s.spare, cell)
		} else {
			kept = append(kept, cell)
		}
	}
	s.open = kept
}
