package traces

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

// reach is the number of rows by which a trace's file may be out of order.
const reach = 1 << 16

func errorOf(err error) error {
	if where, ok := err.(*os.PathError); ok {
		return where.Err
	}
	return err
}

// file yields the rows of a file in file order with the file's times. An error is the last element.
func file(path string, report *Report) iter.Seq2[Request, error] {
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
		rows(in, report)(yield)
	}
}

var errUnordered = errors.New("rows are not in the order of time")

// inOrder passes on rows in order and yields errUnordered after the first row out of order.
func inOrder(rows iter.Seq2[Request, error]) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		var last time.Duration
		for r, err := range rows {
			if err == nil && r.At < last {
				err = errUnordered
			}
			if !yield(r, err) || err != nil {
				return
			}
			last = r.At
		}
	}
}

// ordered sorts rows that are out of order by at most reach.
func ordered(rows iter.Seq2[Request, error]) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		held := make([]Request, 0, 1024)
		var last time.Duration
		give := func(count int) bool {
			byTime(held)
			for _, r := range held[:count] {
				if r.At < last {
					yield(Request{}, fmt.Errorf("the request at %d ns comes more than %d rows too late: "+
						"sort the file by time", r.At.Nanoseconds(), reach))
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
			if held = append(held, r); len(held) == 2*reach && !give(reach) {
				return
			}
		}
		give(len(held))
	}
}

// byTime sorts by time, stably.
func byTime(requests []Request) {
	earlier := func(a, b Request) int { return int(min(max(a.At-b.At, -1), 1)) }
	if !slices.IsSortedFunc(requests, earlier) {
		slices.SortStableFunc(requests, earlier)
	}
}
