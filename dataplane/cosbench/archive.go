package cosbench

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Archive is a folder of results in COSBench's layout.
type Archive struct{ Folder string }

// Entry is a run's place in an archive.
type Entry struct {
	Archive
	ID   string // for example w7
	Name string // for example w7-mos-A
	made bool   // this run created its archive's folder
}

var entryName = regexp.MustCompile(`^w([0-9]{1,9})-`)

// Claim creates the folder of the next run, which no other run can get.
func (a Archive) Claim(workload string) (*Entry, error) {
	_, missing := os.Stat(a.Folder)
	if err := os.MkdirAll(a.Folder, 0o777); err != nil {
		return nil, err
	}
	unlock, err := a.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	number, err := a.latest()
	if err != nil {
		return nil, err
	}
	id := fmt.Sprintf("w%d", number+1)
	e := &Entry{a, id, id + "-" + workload, missing != nil}
	return e, os.Mkdir(e.Path(), 0o777)
}

// lock briefly excludes other drivers of the same archive.
func (a Archive) lock() (func(), error) {
	folder, err := os.Open(a.Folder)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	return func() { _ = folder.Close() }, nil // closing releases the lock
}

// latest returns the largest number of a run, by its folder or by the history.
func (a Archive) latest() (int, error) {
	entries, err := os.ReadDir(a.Folder)
	if err != nil {
		return 0, err
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	past, err := os.ReadFile(filepath.Join(a.Folder, "run-history.csv"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	for line := range strings.Lines(string(past)) {
		id, _, _ := strings.Cut(line, ",")
		names = append(names, id+"-")
	}
	latest := 0
	for _, name := range names {
		if match := entryName.FindStringSubmatch(name); match != nil {
			number, _ := strconv.Atoi(match[1]) // of at most nine digits
			latest = max(latest, number)
		}
	}
	return latest, nil
}

// Path returns the run's folder.
func (e *Entry) Path() string { return filepath.Join(e.Folder, e.Name) }

// Discard removes the folder of a run that measured nothing, and the archive's if this run made it.
func (e *Entry) Discard() error {
	err := os.RemoveAll(e.Path())
	if e.made {
		_ = os.Remove(e.Folder) // fails if another run has its folder there by now
	}
	return err
}

// SaveConfig writes the workload with everything inherited and its secrets masked.
func (e *Entry) SaveConfig(w *Workload) error {
	text, err := xml.MarshalIndent(w, "", "    ")
	return errors.Join(err, e.create("workload-config.xml", append([]byte(xml.Header), append(text, '\n')...)))
}

// Save writes a run's results and adds the run to the archive's lists.
func (e *Entry) Save(r *Result) error {
	text, err := json.MarshalIndent(histograms(e.ID, r), "", " ")
	if err != nil {
		return err
	}
	tables := map[string][]byte{
		e.Name + ".csv":              workloadTable(r),
		e.Name + "-rt-histogram.csv": latencyTable(r),
		"series.csv":                 seriesTable(r),
		"histograms.json":            append(text, '\n'),
	}
	for _, s := range r.Stages {
		tables[s.ID+".csv"] = stageTable(s)
	}
	for name, content := range tables {
		if err := e.create(name, content); err != nil {
			return err
		}
	}
	unlock, err := e.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return errors.Join(e.add("run-history.csv", runColumns, runRow(e.ID, r)),
		e.add("workloads.csv", matrixColumns, matrixTable(e.ID, r)))
}

// create writes a new file.
func (e *Entry) create(name string, content []byte) error {
	file, err := os.OpenFile(filepath.Join(e.Path(), name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}

// add appends rows to one of the archive's own files, with a heading if the file is new.
func (e *Entry) add(name, heading string, rows []byte) error {
	file, err := os.OpenFile(filepath.Join(e.Folder, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && info.Size() == 0 {
		rows = append([]byte(heading+"\n"), rows...)
	}
	if err == nil {
		_, err = file.Write(rows)
	}
	return errors.Join(err, file.Close())
}

// COSBench's formats of dates and times of the day (in the machine's own zone), and its missing value.
const (
	dateFormat = "2006-01-02 15:04:05"
	timeFormat = "15:04:05"
	notThere   = "N/A"
)

// two formats a number with up to two decimals (Java's 0.##).
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

// percent formats a share (Java's 0.##%).
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

func share(done, all int64) float64 {
	if all == 0 {
		return 0
	}
	return float64(done) / float64(all)
}

func count(n int64) string { return strconv.FormatInt(n, 10) }

// states formats a history, one field per state.
func states(moments []Moment) []string {
	texts := make([]string, len(moments))
	for i, m := range moments {
		texts[i] = m.State + " @ " + m.At.Format(dateFormat)
	}
	return texts
}

// table collects rows of CSV. COSBench quotes nothing, and names have no commas.
type table struct{ bytes.Buffer }

func (t *table) row(fields ...string) {
	for i, field := range fields {
		if i > 0 {
			t.WriteByte(',')
		}
		t.WriteString(field)
	}
	t.WriteByte('\n')
}

// Columns of the archive's tables.
const (
	latencyColumns = "Avg-ResTime,Avg-ProcTime,60%-ResTime,80%-ResTime,90%-ResTime,95%-ResTime,99%-ResTime," +
		"100%-ResTime,Throughput,Bandwidth,Succ-Ratio"
	workloadColumns = "Stage,Op-Name,Op-Type,Op-Count,Byte-Count," + latencyColumns + ",Status,Detailed Status"
	matrixColumns   = "Id,Op-Name,Op-Count,Byte-Count,Worker-Count," + latencyColumns + ",Config-Info"
	runColumns      = "Id,Name,Submitted-At,Started-At,Stopped-At,Op-Info,State,Detailed State"
	secondsColumns  = "second,stage,op,tenant,ops,bytes,errors,mean_s,p95_s,work,measured"
)

// latencyFields returns the fields of latencyColumns; times are in milliseconds.
func latencyFields(o *OperationResult) []string {
	fields := []string{milliseconds(o.Response), milliseconds(o.Response - o.Transfer)}
	edges, some := Percentiles(o.Buckets)
	for _, edge := range edges {
		if some {
			fields = append(fields, count(edge))
		} else {
			fields = append(fields, notThere)
		}
	}
	return append(fields, two(o.Throughput), two(o.Bandwidth), ratio(&o.Metrics))
}

// workloadTable returns wN-NAME.csv.
func workloadTable(r *Result) []byte {
	var t table
	t.row(workloadColumns)
	for _, s := range r.Stages {
		ended := append([]string{s.State}, states(s.History)...)
		if len(s.Operations) == 0 {
			fields := []string{s.Name}
			for range 15 {
				fields = append(fields, notThere)
			}
			t.row(append(fields, ended...)...)
		}
		for i := range s.Operations {
			o := &s.Operations[i]
			fields := append([]string{s.ID, o.Label(), o.Type, count(o.Samples), count(o.Bytes)}, latencyFields(o)...)
			t.row(append(fields, ended...)...)
		}
	}
	return t.Bytes()
}

// matrixTable returns the rows for workloads.csv.
func matrixTable(id string, r *Result) []byte {
	tidy := strings.NewReplacer(",", "-", ";", " ", "\n", " ", "\r", " ")
	var t table
	for _, s := range r.Stages {
		for i := range s.Operations {
			o := &s.Operations[i]
			fields := []string{fmt.Sprintf("%s-%s-%d", id, s.ID, i+1), o.Label(), count(o.Samples),
				count(o.Bytes), strconv.Itoa(o.Workers)}
			fields = append(fields, latencyFields(o)...)
			t.row(append(fields, fmt.Sprintf("%d%% %s", o.Ratio, tidy.Replace(o.Config.String())))...)
		}
	}
	return t.Bytes()
}

// runRow returns the row for run-history.csv.
func runRow(id string, r *Result) []byte {
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
	var t table
	t.row(append([]string{id, r.Name, r.Submitted.Format(dateFormat), r.Started.Format(dateFormat),
		r.Stopped.Format(dateFormat), strings.Join(operations, " "), r.State}, states(r.History)...)...)
	return t.Bytes()
}

// seriesColumns are the groups of columns in a stage's series.
var seriesColumns = []struct {
	title string
	field func(*Metrics) string
}{
	{"Op-Count", func(m *Metrics) string { return count(m.Samples) }},
	{"Byte-Count", func(m *Metrics) string { return count(m.Bytes) }},
	{"Avg-ResTime", func(m *Metrics) string { return milliseconds(m.Response) }},
	{"Avg-ProcTime", func(m *Metrics) string { return milliseconds(m.Response - m.Transfer) }},
	{"Throughput", func(m *Metrics) string { return two(m.Throughput) }},
	{"Bandwidth", func(m *Metrics) string { return two(m.Bandwidth) }},
	{"Succ-Ratio", ratio},
}

// stageTable returns sK-STAGE.csv, or nothing if the stage had no operations.
func stageTable(s *StageResult) []byte {
	var t table
	if len(s.Operations) == 0 || len(s.Rows) == 0 {
		return nil
	}
	titles, labels := []string{"Timestamp"}, []string{""}
	for _, group := range seriesColumns {
		for i := range s.Operations {
			title := group.title
			if i > 0 {
				title = ""
			}
			titles, labels = append(titles, title), append(labels, s.Operations[i].Label())
		}
	}
	t.row(append(titles, "Version-Info", "", "")...)
	t.row(append(labels, "Min-Version", "Version", "Max-Version")...)
	for version, row := range s.Rows {
		fields := []string{row.At.Format(timeFormat)}
		for _, group := range seriesColumns {
			for i := range row.Metrics {
				fields = append(fields, group.field(&row.Metrics[i]))
			}
		}
		number := strconv.Itoa(version)
		t.row(append(fields, number, number, number)...)
	}
	return t.Bytes()
}

// latencyTable returns wN-NAME-rt-histogram.csv: operations of normal works in buckets of 10 ms.
func latencyTable(r *Result) []byte {
	titles := []string{"ResTime"}
	var shown []*OperationResult
	for _, s := range r.Stages {
		for i := range s.Operations {
			if o := &s.Operations[i]; o.SampleType() == o.Name {
				shown = append(shown, o)
				titles = append(titles, fmt.Sprintf("%s-w%d-%s-%s", s.ID, o.Index, o.Work.Name, o.Name), "(%)")
			}
		}
	}
	var t table
	t.row(titles...)
	totals, running := make([]int64, len(shown)), make([]int64, len(shown))
	for i, o := range shown {
		for _, n := range o.Buckets {
			totals[i] += n
		}
	}
	fields := make([]string, 0, len(titles))
	for bucket := range lastBucket + 1 {
		to := count(bucketEdge(bucket))
		if bucket == lastBucket {
			to = "+INF"
		}
		fields = append(fields[:0], count(int64(bucket)*bucketWidth.Milliseconds())+"~"+to)
		for i, o := range shown {
			running[i] += o.Buckets[bucket]
			fields = append(fields, count(o.Buckets[bucket]), percent(share(running[i], totals[i])))
		}
		t.row(fields...)
	}
	return t.Bytes()
}

// seriesTable returns series.csv: the requests that ended in each second of the run.
func seriesTable(r *Result) []byte {
	plain := func(d time.Duration, some bool) string {
		if !some {
			return ""
		}
		return fmt.Sprintf("%.9f", d.Seconds())
	}
	var t table
	t.row(secondsColumns)
	for _, s := range r.Stages {
		for _, at := range s.Seconds {
			t.row(count(at.Second), at.Stage, at.Label, r.Name, count(at.Ops), count(at.Bytes), count(at.Errors),
				plain(at.Mean, at.Ops > 0), plain(at.P95, at.Ops > 0), at.Work, strconv.FormatBool(at.Measured))
		}
	}
	return t.Bytes()
}

// histogramFile is histograms.json, which COSBench does not have. Times are in seconds, histograms
// in nanoseconds.
type histogramFile struct {
	ID        string           `json:"id"`
	Workload  string           `json:"workload"`
	State     string           `json:"state"`
	StartedAt float64          `json:"started_unix_s"`
	StoppedAt float64          `json:"stopped_unix_s"`
	Seed      uint64           `json:"seed"`
	Loop      string           `json:"loop"`             // closed or open
	Rate      float64          `json:"rate_s,omitempty"` // of the open loop, 1/s
	Arrivals  string           `json:"arrivals,omitempty"`
	Stages    []stageHistogram `json:"stages"`
}

type stageHistogram struct {
	Stage      string               `json:"stage"`
	State      string               `json:"state"`
	StartedAt  float64              `json:"started_unix_s"` // when its works began to run
	StoppedAt  float64              `json:"stopped_unix_s"`
	Processor  float64              `json:"driver_cpu_s"` // of this process, while the works ran
	Unfinished map[string]int       `json:"unfinished,omitempty"`
	Operations []operationHistogram `json:"operations"`
}

type operationHistogram struct {
	Work       string           `json:"work"`
	Operation  string           `json:"operation"`
	Type       string           `json:"type"`
	Begin      float64          `json:"window_begin_s"` // since the stage's start
	End        *float64         `json:"window_end_s"`   // null: until its last request
	Ops        int64            `json:"ops"`
	Bytes      int64            `json:"bytes"`
	Errors     map[string]int64 `json:"errors"`
	Throughput float64          `json:"throughput_s"`
	Bandwidth  float64          `json:"bandwidth_bytes_s"`
	Mean       *float64         `json:"mean_s"`
	Min        *float64         `json:"min_s"`
	Max        *float64         `json:"max_s"`
	P50        *float64         `json:"p50_s"`
	P95        *float64         `json:"p95_s"`
	P99        *float64         `json:"p99_s"`
	P999       *float64         `json:"p999_s"`
	// Buckets are rows of low_ns, high_ns and count: counts of latencies from low to below high. In
	// open loop, latencies start at the intended begin, and requests with an intended begin in the
	// window count. In closed loop COSBench's rule applies.
	Columns [3]string   `json:"bucket_columns"`
	Buckets [][3]uint64 `json:"buckets"`
}

func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

func histograms(id string, r *Result) histogramFile {
	file := histogramFile{ID: id, Workload: r.Name, State: r.State, StartedAt: unix(r.Started),
		StoppedAt: unix(r.Stopped), Seed: r.Seed, Loop: "closed"}
	if r.OpenLoop != nil {
		file.Loop, file.Rate, file.Arrivals = "open", r.OpenLoop.PerSecond, "constant"
		if r.OpenLoop.Poisson {
			file.Arrivals = "poisson"
		}
	}
	for _, s := range r.Stages {
		stage := stageHistogram{Stage: s.ID, State: s.State, Unfinished: s.Unfinished,
			Processor:  s.Processor.Seconds(),
			Operations: []operationHistogram{}}
		for _, m := range s.History {
			if m.State == "running" {
				stage.StartedAt = unix(m.At)
			}
			stage.StoppedAt = unix(m.At)
		}
		for i := range s.Operations {
			stage.Operations = append(stage.Operations, operationHistogramOf(&s.Operations[i]))
		}
		file.Stages = append(file.Stages, stage)
	}
	return file
}

func operationHistogramOf(o *OperationResult) operationHistogram {
	h, w := &o.Histogram, windowOf(o.Work)
	some := h.Count() > 0
	result := operationHistogram{Work: o.Work.Name, Operation: o.Label(), Type: o.Type, Begin: w.begin.Seconds(),
		End: seconds(w.end, w.end != forever), Ops: int64(h.Count()), Bytes: o.Bytes, Errors: map[string]int64{},
		Throughput: o.Throughput, Bandwidth: o.Bandwidth,
		Min: seconds(h.Min(), some), Max: seconds(h.Max(), some), P50: seconds(h.Quantile(0.50), some),
		P95: seconds(h.Quantile(0.95), some), P99: seconds(h.Quantile(0.99), some),
		P999: seconds(h.Quantile(0.999), some), Columns: [3]string{"low_ns", "high_ns", "count"}, Buckets: [][3]uint64{}}
	if some {
		mean := h.Mean()
		result.Mean = &mean
	}
	for i, n := range o.Failures {
		if n > 0 {
			result.Errors[failureKinds[i]] = n
		}
	}
	for _, b := range h.Buckets() {
		result.Buckets = append(result.Buckets, [3]uint64{uint64(b.Low), uint64(b.High), b.Count})
	}
	return result
}
