// Package traces reads traces in the format "plain" of docs/prioritymeister.md,
//
//	ns,hex size,DiskRead|DiskWrite[,hex offset]
//
// gzip or not, row by row: a long trace takes no more memory than a short one.
package traces

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"time"
)

// Request is a request of a trace.
type Request struct {
	At     time.Duration // since the first
	Offset int64         // UnknownOffset if the trace does not give it
	Size   int64
	Read   bool
}

// UnknownOffset is the offset of a request if its trace gives none.
const UnknownOffset = -1

// Report describes the malformed rows of a trace's file.
type Report struct {
	Malformed int    `json:"malformed"`
	First     string `json:"first_malformed,omitempty"` // with its line
}

// Trace is a source of requests, in order of time: a file that is read on demand, or a list.
type Trace struct {
	Requests int64
	Length   time.Duration // from the first to the last
	Report   Report
	each     iter.Seq2[Request, error]
	list     []Request // all requests, if they are in memory
}

// Each yields the requests in order; an error is the last element.
func (t Trace) Each() iter.Seq2[Request, error] { return t.each }

// Listed returns a trace of ordered requests.
func Listed(requests []Request) Trace {
	t := Trace{Requests: int64(len(requests)), list: requests, each: func(yield func(Request, error) bool) {
		for _, r := range requests {
			if !yield(r, nil) {
				return
			}
		}
	}}
	if len(requests) > 0 {
		t.Length = requests[len(requests)-1].At
	}
	return t
}

// Open reads a trace to its end, so that its mistakes are known before anything is sent. Its
// requests are read again on demand. Malformed rows are left out and counted, or, with strict, an
// error.
func Open(path string, strict bool) (Trace, error) {
	return open(path, strict, 0, 1<<62)
}

// OpenWindow is Open for the requests from `from` to before `until` after the first request,
// shifted so that the window begins at 0.
func OpenWindow(path string, strict bool, from, until time.Duration) (Trace, error) {
	return open(path, strict, from, until)
}

func open(path string, strict bool, from, until time.Duration) (Trace, error) {
	var t Trace
	wrong := func(err error) (Trace, error) { return t, fmt.Errorf("trace %s: %w", path, err) }
	if info, err := os.Stat(path); err != nil {
		return wrong(fmt.Errorf("cannot be read (%w)", errorOf(err)))
	} else if !info.Mode().IsRegular() {
		return wrong(errors.New("is no file that can be read twice"))
	}
	// Most files are in order and need no buffer for sorting.
	origin, sorted := time.Duration(-1), inOrder
	err := t.scan(sorted(file(path, strict, &t.Report)), &origin, from, until)
	if errors.Is(err, errUnordered) {
		t, origin, sorted = Trace{}, -1, ordered
		err = t.scan(sorted(file(path, strict, &t.Report)), &origin, from, until)
	}
	if err != nil {
		return wrong(err)
	}
	if t.Requests == 0 {
		return wrong(errors.New("there is no request in it; rows are ns,hex size,DiskRead|DiskWrite[,hex offset]"))
	}
	count := t.Requests
	t.each = func(yield func(Request, error) bool) {
		left := count
		for r, err := range window(sorted(file(path, strict, new(Report))), &origin, from, until) {
			if left--; (err == nil && left < 0) || errors.Is(err, errUnordered) {
				err = errChanged
			}
			if err != nil {
				yield(r, fmt.Errorf("trace %s: %w", path, err))
				return
			}
			if !yield(r, nil) {
				return
			}
		}
		if left > 0 {
			yield(Request{}, fmt.Errorf("trace %s: %w", path, errChanged))
		}
	}
	return t, nil
}

var errChanged = errors.New("it was changed while it was replayed")

// scan counts the requests of a window.
func (t *Trace) scan(all iter.Seq2[Request, error], origin *time.Duration, from, until time.Duration) error {
	for r, err := range window(all, origin, from, until) {
		if err != nil {
			return err
		}
		t.Requests, t.Length = t.Requests+1, r.At
	}
	return nil
}

// window yields the requests of an interval after the origin, with times from the window's begin.
// An unknown origin (-1) becomes the first request's time.
func window(all iter.Seq2[Request, error], origin *time.Duration, from, until time.Duration) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		for r, err := range all {
			if *origin < 0 {
				*origin = r.At
			}
			if err == nil && r.At < *origin {
				err = errChanged
			}
			if err != nil {
				yield(r, err)
				return
			}
			r.At -= *origin
			if r.At >= until {
				return
			}
			if r.At -= from; r.At >= 0 && !yield(r, nil) {
				return
			}
		}
	}
}
