// Package replay sends the requests of a trace to an NFS server at the trace's own times, or one
// after the other, and tells how long they took (section 5.1 of PriorityMeister).
package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
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

const (
	unknownOffset = -1
	largestValue  = 1 << 62
)

// LoadTrace reads a trace in the format "plain" of docs/prioritymeister.md, gzip or not, sorted by
// time. Malformed rows are left out and counted, or, with strict, an error.
func LoadTrace(path string, strict bool) ([]Request, TraceReport, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, TraceReport{}, fmt.Errorf("trace %s: cannot be read (%w)", path, errorOf(err))
	}
	defer func() { _ = file.Close() }()
	buffered := bufio.NewReaderSize(file, 1<<20)
	var in io.Reader = buffered
	if magic, _ := buffered.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		if in, err = gzip.NewReader(buffered); err != nil {
			return nil, TraceReport{}, fmt.Errorf("trace %s: %w", path, err)
		}
	}
	requests, report, err := parseTrace(in, strict)
	if err != nil {
		return nil, report, fmt.Errorf("trace %s: %w", path, err)
	}
	if len(requests) == 0 {
		return nil, report, fmt.Errorf("trace %s: there is no request in it; rows are "+
			"ns,hex size,DiskRead|DiskWrite[,hex offset]", path)
	}
	return requests, report, nil
}

func errorOf(err error) error {
	if where, ok := err.(*os.PathError); ok {
		return where.Err
	}
	return err
}

func parseTrace(in io.Reader, strict bool) (requests []Request, report TraceReport, err error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	number := 0
	for lines.Scan() {
		number++
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		r, err := parseRow(text)
		if err != nil {
			err = fmt.Errorf("line %d: %w", number, err)
			if strict {
				return nil, report, err
			}
			if report.Malformed++; report.Malformed == 1 {
				report.First = err.Error()
			}
			continue
		}
		requests = append(requests, r)
	}
	if err := lines.Err(); err != nil {
		return nil, report, fmt.Errorf("after line %d: %w", number, err)
	}
	slices.SortStableFunc(requests, func(a, b Request) int { return int(min(max(a.At-b.At, -1), 1)) })
	if len(requests) > 0 {
		zero := requests[0].At
		for i := range requests {
			requests[i].At -= zero
		}
	}
	return requests, report, nil
}

func parseRow(text string) (Request, error) {
	r := Request{Offset: unknownOffset}
	fields := strings.Split(text, ",")
	if len(fields) != 3 && len(fields) != 4 {
		return r, fmt.Errorf("has %d columns, not ns,hex size,DiskRead|DiskWrite", len(fields))
	}
	at, err := number(fields[0], "time", 10)
	if err != nil {
		return r, err
	}
	r.At = time.Duration(at)
	if r.Size, err = number(fields[1], "size", 16); err != nil {
		return r, err
	}
	switch strings.TrimPrefix(strings.ToLower(strings.TrimSpace(fields[2])), "disk") {
	case "read":
		r.Read = true
	case "write":
	default:
		return r, fmt.Errorf("kind %.40q is not DiskRead or DiskWrite", fields[2])
	}
	if len(fields) == 4 {
		r.Offset, err = number(fields[3], "offset", 16)
	}
	return r, err
}

func number(text, what string, base int) (int64, error) {
	text = strings.TrimSpace(text)
	if base == 16 {
		text = strings.TrimPrefix(strings.TrimPrefix(text, "0x"), "0X")
	}
	v, err := strconv.ParseInt(text, base, 64)
	if err != nil || v < 0 || v >= largestValue {
		return 0, fmt.Errorf("%s %.40q is not a number or out of range", what, text)
	}
	return v, nil
}
