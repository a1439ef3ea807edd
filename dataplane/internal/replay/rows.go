package replay

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"
)

const largestValue = 1 << 62

// rows gives the requests of a text as they are written there. An error is the last that it gives.
func rows(in io.Reader, strict bool, report *TraceReport) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
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
			if err == nil {
				if !yield(r, nil) {
					return
				}
				continue
			}
			err = fmt.Errorf("line %d: %w", number, err)
			if strict {
				yield(r, err)
				return
			}
			if report.Malformed++; report.Malformed == 1 {
				report.First = err.Error()
			}
		}
		if err := lines.Err(); err != nil {
			yield(Request{}, fmt.Errorf("after line %d: %w", number, err))
		}
	}
}

func parseRow(text string) (Request, error) {
	r := Request{Offset: unknownOffset}
	var fields [4]string
	count := 0
	for field := range strings.SplitSeq(text, ",") {
		if count < len(fields) {
			fields[count] = field
		}
		count++
	}
	if count != 3 && count != 4 {
		return r, fmt.Errorf("has %d columns, not ns,hex size,DiskRead|DiskWrite", count)
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
	if count == 4 {
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
