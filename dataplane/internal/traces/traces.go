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
	Offset int64         // UnknownOffset where the trace does not tell it
	Size   int64
	Read   bool
}

// UnknownOffset is the offset of a request whose trace does not tell it.
const UnknownOffset = -1

// Report tells what of a trace's file was no request.
type Report struct {
	Malformed int    `json:"malformed"`
	First     string `json:"first_malformed,omitempty"` // with its line
}

// Trace is where requests come from, in the order of time: a file that is read as they are needed,
// or a list.
type Trace struct {
	Requests int64
	Length   time.Duration // from the first to the last
	Report   Report
	each     iter.Seq2[Request, error]
	list     []Request // all of them, where they are in memory
}

// Each gives the requests in order; an error is the last that it gives.
func (t Trace) Each() iter.Seq2[Request, error] { return t.each }

// Listed is a trace of requests that are in order.
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

// Open reads a trace through to its end: what is wrong with it is known before anything is sent. Its
// requests are read again when they are needed. Malformed rows are left out and counted, or, with
// strict, an error.
func Open(path string, strict bool) (Trace, error) {
	return open(path, strict, 0, 1<<62)
}

// OpenWindow is Open of the requests from `from` to before `until` after the first, moved so that
// the window begins at 0.
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
	// Most files are in order, and then nothing has to be kept back to sort it.
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

// window gives the requests of a time after the origin, times from the window's begin. An origin that
// is not known yet, -1, is the first request's time.
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
