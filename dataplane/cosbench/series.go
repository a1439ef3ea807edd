package cosbench

import (
	"time"

	"hotbed/dataplane/sim"
)

// Second is what ended of one operation within one second of the run.
type Second struct {
	Second   int64 // since the run's start
	Stage    string
	Work     string
	Label    string // the operation's
	Measured bool   // whether the second lies inside the work's window, as a whole
	Ops      int64  // that succeeded
	Bytes    int64
	Errors   int64
	Mean     time.Duration // of those that succeeded; 0: there were none
	P95      time.Duration
}

// second is a Second that still grows.
type second struct {
	Second
	of        *OperationResult
	latencies sim.Histogram
}

func (s *second) close() Second {
	if s.Ops = int64(s.latencies.Count()); s.Ops > 0 {
		s.Mean = s.latencies.Sum() / time.Duration(s.Ops)
		s.P95 = s.latencies.Quantile(0.95)
	}
	return s.Second
}

// series gathers the seconds of a stage, in order. A few are kept open, for samples are taken from
// one worker after another.
type series struct {
	stage  string
	offset time.Duration // of the stage's start within the run
	open   []*second
	done   []Second
	spare  []*second
}

// openSeconds is how long a second is kept open after it has passed: requests are collected
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

// close ends the seconds that no sample can be of any more: those of before now, since the stage's
// start, or all.
func (s *series) close(now time.Duration, all bool) {
	before := int64((s.offset+now)/time.Second) - openSeconds
	kept := s.open[:0]
	for _, cell := range s.open {
		if all || cell.Second.Second < before {
			s.done = append(s.done, cell.close())
			s.spare = append(s.spare, cell)
		} else {
			kept = append(kept, cell)
		}
	}
	s.open = kept
}

// latest adds up a work's second before the one that now is in: what a progress line shows.
func (s *series) latest(work *Work, now time.Duration) Second {
	at := int64((s.offset+now)/time.Second) - 1
	sum := &second{Second: Second{Second: at, Stage: s.stage, Work: work.Name}}
	for _, cell := range s.open {
		if cell.Second.Second == at && cell.of.Work == work {
			sum.Bytes += cell.Bytes
			sum.Errors += cell.Errors
			sum.latencies.Merge(&cell.latencies)
		}
	}
	return sum.close()
}
