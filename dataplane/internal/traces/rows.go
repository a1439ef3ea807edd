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

// byteOrderMark is the mark that spreadsheets put at the start of a UTF-8 file.
var byteOrderMark = []byte{0xef, 0xbb, 0xbf}

// rows yields the requests of a text in its order. An error is the last element.
func rows(in io.Reader, report *Report) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		lines := bufio.NewScanner(in)
		lines.Buffer(make([]byte, 64<<10), 1<<20)
		line := 0
		for lines.Scan() {
			line++
			text := lines.Bytes()
			if line == 1 {
				text = bytes.TrimPrefix(text, byteOrderMark)
			}
			text = bytes.TrimSpace(text)
			if len(text) == 0 || text[0] == '#' {
				continue
			}
			r, usual := usualRow(text)
			var err error
			if !usual {
				r, err = parseRow(text)
			}
			if err == nil {
				if !yield(r, nil) {
					return
				}
				continue
			}
			if report.Malformed++; report.Malformed == 1 {
				report.First = fmt.Sprintf("line %d: %v", line, err)
			}
		}
		if err := lines.Err(); err != nil {
			yield(Request{}, fmt.Errorf("after line %d: %w", line, err))
		}
	}
}

// usualRow parses a row in the usual form: only digits between the commas.
func usualRow(text []byte) (r Request, usual bool) {
	at, rest, good := digits(text, 10)
	if !good || len(rest) == 0 {
		return r, false
	}
	r.At, r.Offset = time.Duration(at), UnknownOffset
	if r.Size, rest, good = hex(rest[1:]); !good || len(rest) == 0 {
		return r, false
	}
	switch {
	case bytes.HasPrefix(rest, read):
		r.Read = true
		rest = rest[len(read):]
	case bytes.HasPrefix(rest, write):
		rest = rest[len(write):]
	default:
		return r, false
	}
	if len(rest) > 0 {
		if rest[0] != ',' {
			return r, false
		}
		r.Offset, rest, good = hex(rest[1:])
	}
	return r, good && len(rest) == 0
}

var (
	read  = []byte(",DiskRead")
	write = []byte(",DiskWrite")
)

// hex parses digits of base 16, with an optional 0x.
func hex(text []byte) (value int64, rest []byte, good bool) {
	if len(text) > 2 && text[0] == '0' && text[1] == 'x' {
		text = text[2:]
	}
	return digits(text, 16)
}

// digits parses up to 15 digits and returns the rest, which is empty or begins with a comma.
func digits(text []byte, base int64) (value int64, rest []byte, good bool) {
	for i, c := range text {
		digit := int64(valueOf[c])
		if digit >= base {
			return value, text[i:], c == ',' && i > 0
		}
		if i == 15 {
			return 0, nil, false
		}
		value = value*base + digit
	}
	return value, nil, len(text) > 0
}

// valueOf is the value of each digit; non-digits have a value above any base.
var valueOf = func() (table [256]uint8) {
	for i := range table {
		table[i] = 255
	}
	for i, c := range []byte("0123456789abcdef") {
		table[c] = uint8(i)
	}
	for i, c := range []byte("ABCDEF") {
		table[c] = uint8(10 + i)
	}
	return table
}()

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

// kindOf parses a kind in an unusual form.
func kindOf(text []byte) (read bool, err error) {
	switch string(bytes.TrimPrefix(bytes.ToLower(bytes.TrimSpace(text)), []byte("disk"))) {
	case "read":
		return true, nil
	case "write":
		return false, nil
	}
	return false, fmt.Errorf("kind %.40q is not DiskRead or DiskWrite", text)
}

// number parses a whole number of 0 or more; in base 16, 0x is optional.
func number(text []byte, what string, base int64) (int64, error) {
	trimmed := bytes.TrimSpace(text)
	if base == 16 && len(trimmed) > 2 && trimmed[0] == '0' && trimmed[1]|0x20 == 'x' {
		trimmed = trimmed[2:]
	}
	wrong := fmt.Errorf("%s %.40q is not a number or out of range", what, text)
	if len(trimmed) == 0 {
		return 0, wrong
	}
	value := int64(0)
	for _, c := range trimmed {
		digit := int64(valueOf[c])
		if digit >= base || value > (largestValue-1-digit)/base {
			return 0, wrong
		}
		value = value*base + digit
	}
	return value, nil
}
