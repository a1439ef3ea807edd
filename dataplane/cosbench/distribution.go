package cosbench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode"
)

// Share is the part of a range of numbers that one of several workers has: COSBench's division.
// Lower bound and length; worker from 1 to workers. Where the range does not divide evenly the
// first workers have one number more.
func Share(lower, upper int64, worker, workers int) (int64, int64) {
	all, index := int64(workers), int64(worker-1)
	length := upper - lower + 1
	base, extra := length/all, length%all
	start := lower + base*index + min(extra, index)
	if index < extra {
		base++
	}
	return start, base
}

// Distribution draws numbers as COSBench's selectors and sizes do:
//
//	c(v)             always v
//	u(lo,hi), u(lo)  uniform, both ends included; without hi up to 2147483647
//	r(lo,hi), lo-hi  one after the other, round and round; each worker its own turn when divided
//	s(lo,hi)         one after the other, one turn for all workers
//	h(lo|hi|w,...)   a bucket by its weight, uniform inside; lo||w is open
//
// It may be used by many workers at once.
type Distribution struct {
	kind         byte
	lower, upper int64
	buckets      []bucket
	weight       int64           // of all buckets
	turns        []atomic.Uint64 // of r: one a worker; of s: one
}

type bucket struct{ lower, upper, cumulated int64 }

// open is the upper bound where none is written: the largest of Java's ints.
const open = math.MaxInt32

// ParseDistribution reads a distribution for so many workers.
func ParseDistribution(text string, workers int) (*Distribution, error) {
	d := &Distribution{turns: make([]atomic.Uint64, max(workers, 1))}
	if lower, upper, found := strings.Cut(text, "-"); found && !strings.Contains(text, "(") {
		d.kind = 'r'
		return d, d.bounds(text, []string{lower, upper})
	}
	name, rest, found := strings.Cut(text, "(")
	inside, closed := strings.CutSuffix(rest, ")")
	if !found || !closed || len(name) != 1 || !strings.Contains("cursh", name) {
		return nil, fmt.Errorf("%q is not a distribution; allowed: c(v), u(lo,hi), r(lo,hi), lo-hi, s(lo,hi), "+
			"h(lo|hi|weight,...)", text)
	}
	d.kind = name[0]
	arguments := strings.Split(inside, ",")
	switch d.kind {
	case 'c':
		value, err := number(arguments[0], 0)
		if err != nil || len(arguments) > 1 {
			return nil, fmt.Errorf("%q needs one whole number from 0", text)
		}
		d.lower, d.upper = value, value
		return d, nil
	case 'h':
		return d, d.histogram(text, arguments)
	}
	return d, d.bounds(text, arguments)
}

// number reads a whole number as large as COSBench's.
func number(text string, least int64) (int64, error) {
	value, err := strconv.ParseInt(text, 10, 32)
	if err == nil && value < least {
		err = strconv.ErrRange
	}
	return value, err
}

func (d *Distribution) bounds(text string, arguments []string) error {
	if len(arguments) != 2 && (len(arguments) != 1 || d.kind != 'u') {
		return fmt.Errorf("%q needs a lower and an upper bound", text)
	}
	var err error
	d.lower, err = number(arguments[0], 1)
	d.upper = open
	if err == nil && len(arguments) == 2 {
		d.upper, err = number(arguments[1], 1)
	}
	if err != nil || d.lower > d.upper {
		return fmt.Errorf("%q needs whole numbers from 1 to %d, the lower one first", text, open)
	}
	return nil
}

func (d *Distribution) histogram(text string, arguments []string) error {
	for _, argument := range arguments {
		fields := strings.Split(argument, "|")
		if len(fields) != 3 {
			return fmt.Errorf("%q needs lower|upper|weight in each bucket", text)
		}
		b := bucket{upper: open}
		var weight int64
		var err [3]error
		b.lower, err[0] = number(fields[0], 1)
		if fields[1] != "" {
			b.upper, err[1] = number(fields[1], 1)
		}
		weight, err[2] = number(fields[2], 1)
		if err != [3]error{} || b.lower > b.upper {
			return fmt.Errorf("%q needs whole numbers from 1 in each bucket, the lower bound first", text)
		}
		d.weight += weight
		b.cumulated = d.weight
		d.buckets = append(d.buckets, b)
		d.lower, d.upper = min(b.lower, max(d.lower, 1)), max(b.upper, d.upper)
	}
	d.lower = d.buckets[0].lower
	for _, b := range d.buckets {
		d.lower = min(d.lower, b.lower)
	}
	return nil
}

// Bounds are the least and the largest number that can be drawn.
func (d *Distribution) Bounds() (int64, int64) { return d.lower, d.upper }

// Divisible says why the numbers cannot be divided among so many workers; nil: they can.
func (d *Distribution) Divisible(workers int) error {
	switch {
	case d.kind == 'h' && workers > 1:
		return fmt.Errorf("a histogram cannot be divided among workers")
	case (d.kind == 'u' || d.kind == 'r') && d.upper-d.lower+1 < int64(workers):
		return fmt.Errorf("%d numbers cannot be divided among %d workers; give them at least one each",
			d.upper-d.lower+1, workers)
	}
	return nil
}

// Draw draws a number for one of several workers (from 1); worker 1 of 1 is nobody in particular.
func (d *Distribution) Draw(random *rand.Rand, worker, workers int) int64 {
	switch d.kind {
	case 'u':
		start, length := Share(d.lower, d.upper, worker, workers)
		return start + random.Int64N(length)
	case 'r':
		start, length := Share(d.lower, d.upper, worker, workers)
		return start + turn(&d.turns[worker-1], length)
	case 's':
		return d.lower + turn(&d.turns[0], d.upper-d.lower+1)
	case 'h':
		at := random.Int64N(d.weight)
		for _, b := range d.buckets {
			if at < b.cumulated {
				return b.lower + random.Int64N(b.upper-b.lower+1)
			}
		}
	}
	return d.lower
}

func turn(cursor *atomic.Uint64, length int64) int64 {
	return int64((cursor.Add(1) - 1) % uint64(length))
}

// Sizes draws the sizes of objects in bytes: a distribution and a decimal unit, u(1,128)KB.
type Sizes struct {
	*Distribution
	unit int64
}

var sizeUnits = []struct {
	name  string
	bytes int64
}{{"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1}}

// ParseSizes reads the sizes of objects.
func ParseSizes(text string, workers int) (Sizes, error) {
	for _, unit := range sizeUnits {
		numbers, found := strings.CutSuffix(text, unit.name)
		if found && strings.TrimRightFunc(numbers, unicode.IsLetter) == numbers { // T of TB is no number's end
			d, err := ParseDistribution(numbers, workers)
			return Sizes{d, unit.bytes}, err
		}
	}
	return Sizes{}, fmt.Errorf("%q has no unit that is known; write B, KB, MB or GB behind it, KB being 1000 bytes", text)
}

// Draw draws a size in bytes.
func (s Sizes) Draw(random *rand.Rand) int64 { return s.Distribution.Draw(random, 1, 1) * s.unit }

// Range is what init, prepare, cleanup and dispose go through: r(lo,hi) or lo-hi; r(0,0) is empty.
type Range struct{ Lower, Upper int64 }

// ParseRange reads a range.
func ParseRange(text string) (Range, error) {
	if text == "r(0,0)" || text == "0-0" {
		return Range{1, 0}, nil
	}
	d, err := ParseDistribution(text, 1)
	if err == nil && d.kind != 'r' {
		err = fmt.Errorf("%q is not a range; allowed: r(lo,hi), lo-hi, or r(0,0) for none", text)
	}
	if err != nil {
		return Range{}, err
	}
	return Range{d.lower, d.upper}, nil
}

// Of is the part of the range that a worker has, all of it for worker 1 of 1.
func (r Range) Of(worker, workers int) Range {
	start, length := Share(r.Lower, r.Upper, worker, workers)
	return Range{start, start + length - 1}
}

// Len is how many numbers there are.
func (r Range) Len() int64 { return r.Upper - r.Lower + 1 }
