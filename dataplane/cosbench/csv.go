package cosbench

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// How COSBench writes dates and times of the day: in the machine's own zone.
const (
	dateFormat = "2006-01-02 15:04:05"
	timeFormat = "15:04:05"
)

// notThere is what stands for a value that there is not.
const notThere = "N/A"

// two writes a number with up to two digits behind the point (Java's 0.##).
func two(value float64) string {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return notThere
	}
	text := strconv.FormatFloat(value, 'f', 2, 64)
	text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	if text == "" || text == "-0" {
		return "0"
	}
	return text
}

// percent writes a share (Java's 0.##%).
func percent(value float64) string { return two(value*100) + "%" }

func milliseconds(d time.Duration) string {
	if d <= 0 {
		return notThere
	}
	return two(float64(d) / 1e6)
}

func ratio(m *Metrics) string {
	if m.SuccessRatio() <= 0 {
		return notThere
	}
	return percent(m.SuccessRatio())
}

func history(moments []Moment) []string {
	texts := make([]string, len(moments))
	for i, m := range moments {
		texts[i] = m.State + " @ " + m.At.Format(dateFormat)
	}
	return texts
}

// table writes rows, the first error of which stays.
type table struct {
	out *bufio.Writer
	err error
}

func (t *table) row(fields ...string) {
	if _, err := t.out.WriteString(strings.Join(fields, ",") + "\n"); err != nil {
		t.err = err
	}
}

func writeTable(to io.Writer, fill func(*table)) error {
	t := &table{out: bufio.NewWriter(to)}
	fill(t)
	if err := t.out.Flush(); err != nil {
		return err
	}
	return t.err
}

var workloadColumns = strings.Split("Stage,Op-Name,Op-Type,Op-Count,Byte-Count,Avg-ResTime,Avg-ProcTime,"+
	"60%-ResTime,80%-ResTime,90%-ResTime,95%-ResTime,99%-ResTime,100%-ResTime,Throughput,Bandwidth,"+
	"Succ-Ratio,Status,Detailed Status", ",")

// latencyFields are mean, mean without the transfer, and percentiles; milliseconds.
func latencyFields(o *OperationResult) []string {
	fields := []string{milliseconds(o.Response), milliseconds(o.Response - o.Transfer)}
	edges, some := Percentiles(o.Buckets)
	for _, edge := range edges {
		if some {
			fields = append(fields, strconv.FormatInt(edge, 10))
		} else {
			fields = append(fields, notThere)
		}
	}
	return fields
}

func rateFields(m *Metrics) []string { return []string{two(m.Throughput), two(m.Bandwidth), ratio(m)} }

func count(n int64) string { return strconv.FormatInt(n, 10) }

// workloadTable is wN-NAME.csv.
func workloadTable(r *Result) func(*table) {
	return func(t *table) {
		t.row(workloadColumns...)
		for _, s := range r.Stages {
			ended := append([]string{s.State}, history(s.History)...)
			if len(s.Operations) == 0 {
				fields := []string{s.Name}
				for range 15 {
					fields = append(fields, notThere)
				}
				t.row(append(fields, ended...)...)
			}
			for i := range s.Operations {
				o := &s.Operations[i]
				fields := []string{s.ID, o.Label(), o.Type, count(o.Samples), count(o.Bytes)}
				fields = append(fields, latencyFields(o)...)
				fields = append(fields, rateFields(&o.Metrics)...)
				t.row(append(fields, ended...)...)
			}
		}
	}
}

var matrixColumns = strings.Split("Id,Op-Name,Op-Count,Byte-Count,Worker-Count,Avg-ResTime,Avg-ProcTime,"+
	"60%-ResTime,80%-ResTime,90%-ResTime,95%-ResTime,99%-ResTime,100%-ResTime,Throughput,Bandwidth,"+
	"Succ-Ratio,Config-Info", ",")

// matrixTable is what is added to workloads.csv.
func matrixTable(id string, r *Result, header bool) func(*table) {
	tidy := strings.NewReplacer(",", "-", ";", " ", "\n", " ", "\r", " ")
	return func(t *table) {
		if header {
			t.row(matrixColumns...)
		}
		for _, s := range r.Stages {
			for i := range s.Operations {
				o := &s.Operations[i]
				fields := []string{fmt.Sprintf("%s-%s-%d", id, s.ID, i+1), o.Label(), count(o.Samples),
					count(o.Bytes), strconv.Itoa(o.Workers)}
				fields = append(fields, latencyFields(o)...)
				fields = append(fields, rateFields(&o.Metrics)...)
				t.row(append(fields, fmt.Sprintf("%d%% %s", o.Ratio, tidy.Replace(o.Config.String())))...)
			}
		}
	}
}

var runColumns = []string{"Id", "Name", "Submitted-At", "Started-At", "Stopped-At", "Op-Info", "State",
	"Detailed State"}

// runTable is what is added to run-history.csv.
func runTable(id string, r *Result, header bool) func(*table) {
	return func(t *table) {
		if header {
			t.row(runColumns...)
		}
		var operations []string
		seen := map[string]bool{}
		for i := range r.Workload.Stages {
			for _, w := range r.Workload.Stages[i].Works {
				for _, o := range w.Operations {
					if !seen[o.Type] {
						operations = append(operations, o.Type)
					}
					seen[o.Type] = true
				}
			}
		}
		fields := []string{id, r.Name, r.Submitted.Format(dateFormat), r.Started.Format(dateFormat),
			r.Stopped.Format(dateFormat), strings.Join(operations, " "), r.State}
		t.row(append(fields, history(r.History)...)...)
	}
}

// stageTable is sK-STAGE.csv; nothing when the stage had no operations.
func stageTable(s *StageResult) func(*table) {
	return func(t *table) {
		n := len(s.Operations)
		if n == 0 || len(s.Rows) == 0 {
			return
		}
		titles, labels := []string{"Timestamp"}, []string{""}
		for _, title := range []string{"Op-Count", "Byte-Count", "Avg-ResTime", "Avg-ProcTime", "Throughput",
			"Bandwidth", "Succ-Ratio"} {
			titles = append(titles, title)
			for i := range n {
				if i > 0 {
					titles = append(titles, "")
				}
				labels = append(labels, s.Operations[i].Label())
			}
		}
		t.row(append(titles, "Version-Info", "", "")...)
		t.row(append(labels, "Min-Version", "Version", "Max-Version")...)
		for version, row := range s.Rows {
			t.row(rowFields(row, strconv.Itoa(version))...)
		}
	}
}

func rowFields(row Row, version string) []string {
	fields := []string{row.At.Format(timeFormat)}
	for _, field := range []func(*Metrics) string{
		func(m *Metrics) string { return count(m.Samples) },
		func(m *Metrics) string { return count(m.Bytes) },
		func(m *Metrics) string { return milliseconds(m.Response) },
		func(m *Metrics) string { return milliseconds(m.Response - m.Transfer) },
		func(m *Metrics) string { return two(m.Throughput) },
		func(m *Metrics) string { return two(m.Bandwidth) },
		ratio,
	} {
		for i := range row.Metrics {
			fields = append(fields, field(&row.Metrics[i]))
		}
	}
	return append(fields, version, version, version)
}

// latencyTable is wN-NAME-rt-histogram.csv: the operations of normal works in buckets of 10 ms.
func latencyTable(r *Result) func(*table) {
	return func(t *table) {
		titles := []string{"ResTime"}
		var shown []*OperationResult
		for _, s := range r.Stages {
			for i := range s.Operations {
				o := &s.Operations[i]
				if o.SampleType() == o.Name {
					shown = append(shown, o)
					titles = append(titles, fmt.Sprintf("%s-w%d-%s-%s", s.ID, o.Index, o.Work.Name, o.Name), "(%)")
				}
			}
		}
		t.row(titles...)
		totals, running := make([]int64, len(shown)), make([]int64, len(shown))
		for i, o := range shown {
			for _, n := range o.Buckets {
				totals[i] += n
			}
		}
		for bucket := range lastBucket + 1 {
			from := int64(bucket) * bucketWidth.Milliseconds()
			to := count(bucketEdge(bucket))
			if bucket == lastBucket {
				to = "+INF"
			}
			fields := []string{fmt.Sprintf("%d~%s", from, to)}
			for i, o := range shown {
				running[i] += o.Buckets[bucket]
				fields = append(fields, count(o.Buckets[bucket]), percent(share(running[i], totals[i])))
			}
			t.row(fields...)
		}
	}
}
