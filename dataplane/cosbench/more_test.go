package cosbench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestWorksSideBySide has the works of a stage run together, with operations numbered through.
func TestWorksSideBySide(t *testing.T) {
	m := newMemory()
	m.containers["mycontainers1"] = map[string]int64{"myobjects1": 100}
	folder := t.TempDir()
	for name, text := range map[string]string{"a.txt": "first", "b.txt": "second one"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	result, err := drive(t, m, stage("main", `
<work name="one" workers="2" totalOps="20"><operation type="read" config="containers=c(1);objects=c(1)"/></work>
<work name="two" workers="1" totalOps="4"><operation type="filewrite" config="containers=c(1);files=`+folder+`;fileselection=s;hashCheck=true"/></work>
<work name="three" workers="1" totalBytes="1000"><operation type="read" ratio="50" config="containers=c(1);objects=c(1)"/>
<operation type="list" ratio="50" config="containers=c(1);objects=c(1)"/></work>`), Options{})
	if err != nil || result.State != "finished" {
		t.Fatal(err, result.State)
	}
	s := result.Stages[0]
	var titles []string
	for _, o := range s.Operations {
		titles = append(titles, o.Work.Name+" "+o.ID+" "+o.Label())
	}
	if got := strings.Join(titles, ", "); got != "one op1 read, two op2 filewrite, three op3 read, three op4 list" {
		t.Error(got)
	}
	if files := s.Operations[1]; files.Samples != 4 || files.Bytes != 2*(5+10+2*int64(hashLen)) ||
		m.containers["mycontainers1"]["a.txt"] != 5+int64(hashLen) || m.containers["mycontainers1"]["b.txt"] != 10+int64(hashLen) {
		t.Errorf("filewrite %+v, %v", files.Metrics, m.containers)
	}
	if files := s.Operations[1]; files.Transfer <= 0 || files.Transfer > files.Response {
		t.Errorf("of %v per file %v is transfer", files.Response, files.Transfer)
	}
	if s.Operations[0].Samples != 20 || s.Operations[0].Bytes != 2000 {
		t.Errorf("read %+v", s.Operations[0].Metrics)
	}
	if bytes := s.Operations[2].Bytes + s.Operations[3].Bytes; bytes < 1000 || bytes >= 1100 {
		t.Errorf("%d bytes, not about 1000", bytes)
	}
	if len(s.Rows) == 0 || len(s.Rows[0].Metrics) != 4 {
		t.Errorf("rows %v", s.Rows)
	}
}

// TestWorksOfOneName keep apart what they did, and add up what they did not get to.
func TestWorksOfOneName(t *testing.T) {
	m := newMemory()
	m.containers["mycontainers1"] = map[string]int64{"myobjects1": 100}
	m.fail = func(string, string, string) error {
		time.Sleep(50 * time.Millisecond) // a request each 10 ms is more than they can do
		return nil
	}
	one := `<work name="m" workers="1" runtime="1"><operation type="read" config="containers=c(1);objects=c(1)"/></work>`
	result, err := drive(t, m, stage("main", one+one), Options{OpenLoop: &Rate{PerSecond: 100}})
	if err != nil {
		t.Fatal(err)
	}
	ended, left := 0, result.Stages[0].Unfinished["m"]
	for i := range result.Stages[0].Operations {
		ended += int(result.Stages[0].Operations[i].Histogram.Count())
	}
	if ended+left != 200 {
		t.Errorf("%d ended and %d did not, of 100 each", ended, left)
	}
}

// TestLatestOfOneWork is not that of another one of its name.
func TestLatestOfOneWork(t *testing.T) {
	works := [2]Work{{Name: "m"}, {Name: "m"}}
	s := series{}
	for i := range works {
		o := &OperationResult{Operation: &Operation{}, Work: &works[i]}
		for range i + 1 {
			s.add(o, &sample{end: time.Second / 2})
		}
	}
	for i := range works {
		if got := s.latest(&works[i], 3*time.Second/2).Ops; got != int64(i+1) {
			t.Errorf("work %d did %d, not %d", i, got, i+1)
		}
	}
}

// TestCleanupRemovesContainers that several workers share.
func TestCleanupRemovesContainers(t *testing.T) {
	m := newMemory()
	if _, err := drive(t, m, initial+prepared, Options{}); err != nil {
		t.Fatal(err)
	}
	var told []string
	clean := stage("cleanup", `<work type="cleanup" workers="4" config="containers=r(1,2);objects=r(1,10);deleteContainer=true"/>`)
	result, err := drive(t, m, clean, Options{Warn: func(text string) { told = append(told, text) }})
	if err != nil || len(m.containers) != 0 || result.Stages[0].Operations[0].Samples != 20 || len(told) > 1 {
		t.Errorf("%v: %v remain, told %v", err, m.containers, told)
	}
}

// TestCorruptObjects are failures of their own kind.
func TestCorruptObjects(t *testing.T) {
	m := newMemory()
	m.containers["mycontainers1"] = map[string]int64{"myobjects1": 100}
	broken := guard + strings.Repeat("0", int(hashLen)-2*len(guard)) + guard
	m.content = strings.Repeat("x", 60) + broken
	main := stage("main", `<work name="m" workers="1" totalOps="3" afr="1000000"><operation type="read" config="containers=c(1);objects=c(1);hashCheck=true"/></work>`)
	result, err := drive(t, m, main, Options{})
	o := result.Stages[0].Operations[0]
	if err != nil || o.Samples != 0 || o.All != 3 || o.Failures[len(failureKinds)-1] != 3 {
		t.Errorf("%v %+v %v", err, o.Metrics, o.Failures)
	}
}
