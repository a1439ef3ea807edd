// Package replay sends the requests of a trace to an NFS server at the trace's own times, or one
// after the other, and tells how long they took (section 5.1 of PriorityMeister).
package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"time"
)

// Request is a request of a trace.
type Request struct {
	At     time.Duration // since the first
	Offset int64         // -1 where the trace does not tell it
	Size   int64
	Read   bool
}

// TraceReport tells what of a trace's file was no request.
type TraceReport struct {
	Malformed int    `json:"malformed"`
	First     string `json:"first_malformed,omitempty"` // with its line
}

// Trace is where requests come from, in the order of time: a file that is read as they are needed,
// or a list.
type Trace struct {
	Requests int64
	Length   time.Duration // from the first to the last
	Report   TraceReport
	each     iter.Seq2[Request, error]
}

const (
	unknownOffset = -1
	// window is by how many rows a trace's file may be out of order.
	window = 1 << 16
)

// Listed is a trace of requests that are in order.
func Listed(requests []Request) Trace {
	t := Trace{Requests: int64(len(requests)), each: func(yield func(Request, error) bool) {
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

// OpenTrace reads a trace in the format "plain" of docs/prioritymeister.md, gzip or not, through to
// its end: what is wrong with it is known before anything is sent. Its requests are read again when
// they are sent, never more than some blocks of them ahead, so that a long trace takes no more
// memory than a short one. Malformed rows are left out and counted, or, with strict, an error.
func OpenTrace(path string, strict bool) (Trace, error) {
	var t Trace
	wrong := func(err error) (Trace, error) { return t, fmt.Errorf("trace %s: %w", path, err) }
	if info, err := os.Stat(path); err != nil {
		return wrong(fmt.Errorf("cannot be read (%w)", errorOf(err)))
	} else if !info.Mode().IsRegular() {
		return wrong(errors.New("is no file that can be read twice"))
	}
	var first time.Duration
	for r, err := range ordered(file(path, strict, &t.Report)) {
		if err != nil {
			return wrong(err)
		}
		if t.Requests == 0 {
			first = r.At
		}
		t.Requests, t.Length = t.Requests+1, r.At-first
	}
	if t.Requests == 0 {
		return wrong(errors.New("there is no request in it; rows are ns,hex size,DiskRead|DiskWrite[,hex offset]"))
	}
	count := t.Requests
	t.each = func(yield func(Request, error) bool) {
		left := count
		for r, err := range ordered(file(path, strict, new(TraceReport))) {
			r.At -= first
			if left--; err == nil && (left < 0 || r.At < 0) {
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

func errorOf(err error) error {
	if where, ok := err.(*os.PathError); ok {
		return where.Err
	}
	return err
}

// file gives the rows of a file as they come, times as they are in it. An error is the last it gives.
func file(path string, strict bool, report *TraceReport) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		opened, err := os.Open(path)
		if err != nil {
			yield(Request{}, fmt.Errorf("cannot be read (%w)", errorOf(err)))
			return
		}
		defer func() { _ = opened.Close() }()
		buffered := bufio.NewReaderSize(opened, 1<<18)
		var in io.Reader = buffered
		if magic, _ := buffered.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
			if in, err = gzip.NewReader(buffered); err != nil {
				yield(Request{}, err)
				return
			}
		}
		rows(in, strict, report)(yield)
	}
}

// ordered sorts rows that are out of order by at most a window.
func ordered(rows iter.Seq2[Request, error]) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		held := make([]Request, 0, 1024)
		var last time.Duration
		give := func(count int) bool {
			byTime(held)
			for _, r := range held[:count] {
				if r.At < last {
					yield(Request{}, fmt.Errorf("the request at %d ns comes more than %d rows too late: sort the file by time",
						r.At.Nanoseconds(), window))
					return false
				}
				last = r.At
				if !yield(r, nil) {
					return false
				}
			}
			held = append(held[:0], held[count:]...)
			return true
		}
		for r, err := range rows {
			if err != nil {
				yield(r, err)
				return
			}
			if held = append(held, r); len(held) == 2*window && !give(window) {
				return
			}
		}
		give(len(held))
	}
}

// byTime sorts, and leaves requests of one time in their order.
func byTime(requests []Request) {
	earlier := func(a, b Request) int { return int(min(max(a.At-b.At, -1), 1)) }
	if !slices.IsSortedFunc(requests, earlier) {
		slices.SortStableFunc(requests, earlier)
	}
}
