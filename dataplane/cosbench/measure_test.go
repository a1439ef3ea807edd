package cosbench

import (
	"bytes"
	"encoding/csv"
	"strconv"
	"strings"
	"testing"
	"time"

	"hotbed/dataplane/tests/must"
)

func table2(t *testing.T, path string) [][]string {
	t.Helper()
	text := must.Read(t, path)
	reader := csv.NewReader(bytes.NewReader(text))
	reader.FieldsPerRecord = -1
	rows, err := reader.ReadAll()
	must.Succeed(t, err)
	return rows
}

// checkReported recomputes a real COSBench's reported percentiles and running percentages from its
// histogram.
func checkReported(t *testing.T, reported, histogram [][]string) {
	t.Helper()
	checked := 0
	for column := 1; column < len(histogram[0]); column += 2 {
		buckets := make([]int64, lastBucket+1)
		var running, total int64
		for i, row := range histogram[1:] {
			buckets[i], _ = strconv.ParseInt(row[column], 10, 64)
			total += buckets[i]
		}
		for i, row := range histogram[1:] {
			running += buckets[i]
			if got := percent(share(running, total)); got != row[column+1] {
				t.Errorf("%s %s: %s, not %s", histogram[0][column], row[0], got, row[column+1])
			}
		}
		for _, row := range reported[1:] {
			if !strings.HasPrefix(histogram[0][column], row[0]+"-w1-") || !strings.HasSuffix(histogram[0][column], "-"+row[1]) {
				continue
			}
			checked++
			edges, some := Percentiles(buckets)
			for i, want := range row[7:13] {
				if got := strconv.FormatInt(edges[i], 10); got != want || !some {
					t.Errorf("%s: percentile %d is %s, not %s", histogram[0][column], i, got, want)
				}
			}
			if row[3] != strconv.FormatInt(total, 10) {
				t.Errorf("%s: %d samples, not %s", histogram[0][column], total, row[3])
			}
		}
	}
	if checked == 0 {
		t.Error("no operation was recomputed")
	}
}

func TestRecordedPercentiles(t *testing.T) {
	checkReported(t, table2(t, "testdata/recorded.csv"), table2(t, "testdata/recorded-histogram.csv"))
}

// TestFewSamples checks COSBench's rule for few samples, as recorded from the real COSBench. With
// one sample of 3437 ms, 60 to 99 % are 10 ms; with five, the last is above 99 %.
func TestFewSamples(t *testing.T) {
	for _, c := range []struct {
		milliseconds []int
		want         [6]int64
	}{
		{[]int{3437}, [6]int64{10, 10, 10, 10, 10, 3440}},
		{[]int{52, 95, 95, 141, 199}, [6]int64{100, 150, 150, 150, 150, 200}},
		{[]int{600_000}, [6]int64{10, 10, 10, 10, 10, 1<<63 - 1}},
	} {
		buckets := make([]int64, lastBucket+1)
		for _, ms := range c.milliseconds {
			buckets[bucketIndex(time.Duration(ms)*time.Millisecond)]++
		}
		if got, _ := Percentiles(buckets); got != c.want {
			t.Errorf("%v: %v, not %v", c.milliseconds, got, c.want)
		}
	}
	if _, some := Percentiles(make([]int64, lastBucket+1)); some {
		t.Error("percentiles of nothing")
	}
}

// TestNumbers checks that numbers are formatted as in the real COSBench.
func TestNumbers(t *testing.T) {
	for value, want := range map[float64]string{0: "0", 200.0612: "200.06", 13173388.96: "13173388.96", 11.96: "11.96",
		20.5: "20.5", 115.996: "116", 0.004: "0", 2.675: "2.67", 1e9: "1000000000", 0.125: "0.12", 0.375: "0.38"} {
		if got := two(value); got != want {
			t.Errorf("%v is written %s, not %s", value, got, want)
		}
	}
	for value, want := range map[float64]string{1: "100%", 0.9932: "99.32%", 0.5: "50%", 0.0031: "0.31%", 0.00004: "0%"} {
		if got := percent(value); got != want {
			t.Errorf("%v is written %s, not %s", value, got, want)
		}
	}
}

// tally returns a tally of a work with the given workers and one read and one write operation.
func tally(t *testing.T, limits string, workers int) *workTally {
	t.Helper()
	p := plan(t, workload(`<work name="m" workers="`+strconv.Itoa(workers)+`" `+limits+`>
<operation type="read" ratio="50" config="containers=c(1);objects=c(1)"/>
<operation type="write" ratio="50" config="containers=c(1);objects=c(1);sizes=c(1)KB"/></work>`))
	run := &workRun{workPlan: p.stages[0].works[0], window: windowOf(p.stages[0].works[0].Work)}
	return newWorkTally(run)
}

func milli(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// TestMeasuringRule checks COSBench's rule: only requests inside [rampup, rampup+runtime] count. A
// worker's throughput is its samples over the time from its first begin to its last end, for all
// operations. Workers add up; means are weighted by the number of samples.
func TestMeasuringRule(t *testing.T) {
	m := tally(t, `rampup="1" runtime="10" rampdown="1"`, 2)
	s := &series{stage: "s1-main"}
	add := func(worker int, operation uint8, begin, end int, bytes int64, failed uint8) {
		m.add(worker, &sample{operation: operation, failed: failed, begin: milli(begin), end: milli(end),
			response: milli(end - begin), transfer: milli((end - begin) / 4), bytes: bytes}, s)
	}
	add(0, 0, 500, 900, 9, 0)       // in the ramp
	add(0, 0, 900, 1100, 9, 0)      // begins too early
	add(0, 0, 1100, 1500, 100, 0)   // worker 1 from 1100
	add(0, 1, 1500, 2300, 1000, 0)  //
	add(0, 0, 2300, 3100, 300, 0)   // to 3100: 2 s
	add(1, 1, 2000, 3000, 1000, 0)  // worker 2 from 2000
	add(1, 0, 3000, 5600, 0, 1)     // a failure lengthens its time
	add(1, 0, 5600, 6000, 100, 0)   // to 6000: 4 s
	add(1, 0, 10900, 11000, 100, 0) // the window's end counts: to 11000: 9 s
	add(1, 0, 10950, 11001, 9, 0)   // ends too late
	add(1, 0, 11500, 11600, 9, 0)   // in the ramp
	results := m.results()
	read, write := &results[0], &results[1]
	near := func(what string, got, want float64) {
		t.Helper()
		if got < want*(1-1e-9) || got > want*(1+1e-9) {
			t.Errorf("%s is %v, not %v", what, got, want)
		}
	}
	if read.Samples != 4 || read.All != 5 || read.Bytes != 600 || read.Workers != 2 || write.Samples != 2 || write.All != 2 {
		t.Errorf("read %+v, write %+v", read.Metrics, write.Metrics)
	}
	near("reads a second", read.Throughput, 2/2.0+2/9.0)
	near("read bytes a second", read.Bandwidth, 400/2.0+200/9.0)
	near("writes a second", write.Throughput, 1/2.0+1/9.0)
	near("mean", read.Response.Seconds(), (0.4+0.8+0.4+0.1)/4)
	near("transfer", read.Transfer.Seconds(), (0.4+0.8+0.4+0.1)/16)
	near("success", read.SuccessRatio(), 0.8)
	if edges, _ := Percentiles(read.Buckets); edges != [6]int64{410, 410, 410, 410, 410, 810} {
		t.Errorf("percentiles %v", edges)
	}
	if read.Histogram.Count() != 4 || read.Histogram.Max() != milli(800) || read.Failures[0] != 1 {
		t.Errorf("histogram of %d, failures %v", read.Histogram.Count(), read.Failures)
	}
	if failures, all := failed(results); failures != 1 || all != 7 || acceptable(failures, all, 142_857) || !acceptable(failures, all, 142_858) {
		t.Errorf("%d of %d failed", failures, all)
	}
	// The series has all requests, by the second in which they ended.
	s.close(0, true)
	var ops, errors int64
	for _, at := range s.done {
		ops, errors = ops+at.Ops, errors+at.Errors
		if at.Second == 11 && at.Label == "read" && (at.Ops != 3 || at.Measured) || at.Second == 3 && !at.Measured {
			t.Errorf("%+v", at)
		}
	}
	if ops != 10 || errors != 1 {
		t.Errorf("the series has %d operations and %d errors", ops, errors)
	}
}

// TestRows checks that rows are rates by each worker's own time, with each sample in one row.
func TestRows(t *testing.T) {
	m := tally(t, `runtime="10"`, 2)
	s := &series{}
	add := func(worker, begin, end int) {
		m.add(worker, &sample{begin: milli(begin), end: milli(end), response: milli(end - begin)}, s)
	}
	add(0, 0, 500)
	add(0, 500, 1000)
	add(1, 0, 2000)
	if row := m.row(); row[0].Samples != 3 || row[0].Throughput != 2/1.0+1/2.0 || row[1].Samples != 0 || row[1].Throughput != 0 {
		t.Errorf("first row %+v", row)
	}
	add(0, 1000, 1250)
	if row := m.row(); row[0].Samples != 1 || row[0].Throughput != 4 {
		t.Errorf("second row %+v", row)
	}
	if row := m.row(); row[0].Samples != 0 || row[0].Throughput != 0 {
		t.Errorf("third row %+v", row)
	}
}

// TestOpenLoopMeasures checks both counts: the full histogram has requests due in the window,
// however late they ended. COSBench's rule counts only those that ended in it.
func TestOpenLoopMeasures(t *testing.T) {
	m := tally(t, `runtime="1" rampdown="1"`, 1)
	m.run.arrivals = newArrivals(&Rate{PerSecond: 4}, m.run.window, [2]uint64{1, 1})
	for { // the worker takes these and executes three of them
		if _, more := m.run.arrivals.take(); !more {
			break
		}
	}
	for i, end := range []int{100, 300, 1700} {
		m.add(0, &sample{begin: milli(250 * i), end: milli(end), response: milli(end - 250*i)}, &series{})
	}
	r := m.results()[0]
	if r.Samples != 2 || r.Histogram.Count() != 3 || r.Histogram.Max() != milli(1200) {
		t.Errorf("%d by COSBench's rule, %d in the histogram, the longest %v", r.Samples, r.Histogram.Count(), r.Histogram.Max())
	}
	if left := m.run.arrivals.all() - m.intended; left != 1 {
		t.Errorf("%d of 4 are not finished", left)
	}
}

// TestArrivals checks that arrivals have the rate, are ordered and depend only on the seed.
func TestArrivals(t *testing.T) {
	for _, poisson := range []bool{false, true} {
		var times [2][]time.Duration
		for i := range times {
			a := newArrivals(&Rate{PerSecond: 1000, Poisson: poisson}, window{0, 10 * time.Second, 10 * time.Second}, [2]uint64{1, 2})
			for at, more := a.take(); more; at, more = a.take() {
				times[i] = append(times[i], at)
			}
			if a.all() != len(times[i]) {
				t.Errorf("%d of %d arrivals", a.all(), len(times[i]))
			}
		}
		n := len(times[0])
		var square float64
		for i := 1; i < n; i++ {
			gap := (times[0][i] - times[0][i-1]).Seconds() * 1000
			if gap < 0 || times[0][i] != times[1][i] {
				t.Fatalf("arrival %d at %v after %v, and %v", i, times[0][i], times[0][i-1], times[1][i])
			}
			square += gap * gap
		}
		// The square of a gap is twice its mean's square when they are exponential.
		if square /= float64(n); n < 9700 || n > 10_300 || poisson && (square < 1.8 || square > 2.2) || !poisson && (square < 0.99 || square > 1.01) {
			t.Errorf("poisson %v: %d arrivals in 10 s at 1000/s, mean square gap %v", poisson, n, square)
		}
	}
}
