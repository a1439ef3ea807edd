package traces

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"iter"
	"time"
)

const largestValue = 1 << 62

// rows gives the requests of a text as they are written there. An error is the last that it gives.
func rows(in io.Reader, strict bool, report *Report) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		lines := bufio.NewScanner(in)
		lines.Buffer(make([]byte, 64<<10), 1<<20)
		line := 0
		for lines.Scan() {
			line++
			text := bytes.TrimSpace(lines.Bytes())
			if len(text) == 0 || text[0] == '#' {
				continue
			}
			r, err := parseRow(text)
			if err == nil {
				if !yield(r, nil) {
					return
				}
				continue
			}
			err = fmt.Errorf("line %d: %w", line, err)
			if strict {
				yield(r, err)
				return
			}
			if report.Malformed++; report.Malformed == 1 {
				report.First = err.Error()
			}
		}
		if err := lines.Err(); err != nil {
			yield(Request{}, fmt.Errorf("after line %d: %w", line, err))
		}
	}
}

func parseRow(text []byte) (Request, error) {
	r := Request{Offset: UnknownOffset}
	if n := bytes.Count(text, []byte{','}) + 1; n != 3 && n != 4 {
		return r, fmt.Errorf("has %d columns, not ns,hex size,DiskRead|DiskWrite", n)
	}
	time0, rest, _ := bytes.Cut(text, []byte{','})
	size, rest, _ := bytes.Cut(rest, []byte{','})
	kind, offset, more := bytes.Cut(rest, []byte{','})
	at, err := number(time0, "time", 10)
	if err != nil {
		return r, err
	}
	r.At = time.Duration(at)
	if r.Size, err = number(size, "size", 16); err != nil {
		return r, err
	}
	switch string(kind) {
	case "DiskRead":
		r.Read = true
	case "DiskWrite":
	default:
		if r.Read, err = kindOf(kind); err != nil {
			return r, err
		}
	}
	if more {
		r.Offset, err = number(offset, "offset", 16)
	}
	return r, err
}

// kindOf reads the kind where it is not written as usual.
func kindOf(text []byte) (read bool, err error) {
	switch string(bytes.TrimPrefix(bytes.ToLower(bytes.TrimSpace(text)), []byte("disk"))) {
	case "read":
		return true, nil
	case "write":
		return false, nil
	}
	return false, fmt.Errorf("kind %.40q is not DiskRead or DiskWrite", text)
}

// number reads a whole number of 0 or more; one of base 16 may begin with 0x.
func number(text []byte, what string, base int64) (int64, error) {
	digits := bytes.TrimSpace(text)
	if base == 16 && len(digits) > 2 && digits[0] == '0' && digits[1]|0x20 == 'x' {
		digits = digits[2:]
	}
	value := int64(0)
	for _, c := range digits {
		var digit int64
		switch lower := c | 0x20; {
		case c >= '0' && c <= '9':
			digit = int64(c - '0')
		case base == 16 && lower >= 'a' && lower <= 'f':
			digit = int64(lower-'a') + 10
		default:
			digit = largestValue
		}
		if digit == largestValue || value > (largestValue-1-digit)/base {
			value = -1
			break
		}
		value = value*base + digit
	}
	if len(digits) == 0 || value < 0 {
		return 0, fmt.Errorf("%s %.40q is not a number or out of range", what, text)
	}
	return value, nil
}
