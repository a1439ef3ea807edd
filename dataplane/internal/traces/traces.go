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
// requests are read again on demand. Malformed rows are left out and counted.
func Open(path string) (Trace, error) {
	var t Trace
	wrong := func(err error) (Trace, error) { return t, fmt.Errorf("trace %s: %w", path, err) }
	if info, err := os.Stat(path); err != nil {
		return wrong(fmt.Errorf("cannot be read (%w)", errorOf(err)))
	} else if !info.Mode().IsRegular() {
		return wrong(errors.New("is no file that can be read twice"))
	}
	// Most files are in order and need no buffer for sorting.
	origin, sorted := time.Duration(-1), inOrder
	err := t.scan(sorted(file(path, &t.Report)), &origin)
	if errors.Is(err, errUnordered) {
		t, origin, sorted = Trace{}, -1, ordered
		err = t.scan(sorted(file(path, &t.Report)), &origin)
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
		for r, err := range fromFirst(sorted(file(path, new(Report))), &origin) {
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

// scan counts the requests.
func (t *Trace) scan(all iter.Seq2[Request, error], origin *time.Duration) error {
	for r, err := range fromFirst(all, origin) {
		if err != nil {
			return err
		}
		t.Requests, t.Length = t.Requests+1, r.At
	}
	return nil
}

// fromFirst yields the requests with times from the origin. An unknown origin (-1) becomes the first
// request's time.
func fromFirst(all iter.Seq2[Request, error], origin *time.Duration) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		for r, err := range all {
			if *origin < 0 {
				*origin = r.At
			}
			if err == nil && r.At < *origin {
				err = errChanged
			}
			if r.At -= *origin; !yield(r, err) || err != nil {
				return
			}
		}
	}
}
