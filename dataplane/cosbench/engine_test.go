package cosbench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hotbed/dataplane/cosbench/store"
	"hotbed/dataplane/tests/must"
)

// memory is an in-memory store, shared by all workers of a test.
type memory struct {
	mu         sync.Mutex
	containers map[string]map[string]int64
	log        map[string][]string // by worker, in its order
	opened     int
	content    string // the content read; empty: as many x as the object is long
	fail       func(what, container, object string) error
}

func (m *memory) open(store.Session) (store.Storage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opened++
	return &memoryWorker{m, fmt.Sprint("worker ", m.opened)}, nil
}

type memoryWorker struct {
	*memory
	name string
}

func (w *memoryWorker) do(what, container, object string, act func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log[w.name] = append(w.log[w.name], what+" "+container+" "+object)
	if w.fail != nil {
		if err := w.fail(what, container, object); err != nil {
			return err
		}
	}
	return act()
}

var errMissing = &store.Error{Kind: store.NotFound, Status: 404, Message: "nothing there"}

func (w *memoryWorker) CreateContainer(_ context.Context, container string) error {
	return w.do("create", container, "", func() error {
		if w.containers[container] == nil {
			w.containers[container] = map[string]int64{}
		}
		return nil
	})
}

func (w *memoryWorker) DeleteContainer(_ context.Context, container string) error {
	return w.do("drop", container, "", func() error {
		if len(w.containers[container]) > 0 {
			return &store.Error{Kind: store.Other, Status: 409, Message: "not empty"}
		}
		delete(w.containers, container)
		return nil
	})
}

func (w *memoryWorker) Put(_ context.Context, container, object string, body io.ReadSeeker, length int64) error {
	n, err := io.Copy(io.Discard, body)
	return w.do("put", container, object, func() error {
		if w.containers[container] == nil {
			return errMissing
		}
		w.containers[container][object] = n
		if length >= 0 && n != length {
			return errors.New("another length than said")
		}
		return err
	})
}

func (w *memoryWorker) Get(_ context.Context, container, object string) (io.ReadCloser, error) {
	var size int64
	err := w.do("get", container, object, func() error {
		found := false
		if size, found = w.containers[container][object]; !found {
			return errMissing
		}
		return nil
	})
	if w.content != "" {
		return io.NopCloser(strings.NewReader(w.content)), err
	}
	return io.NopCloser(strings.NewReader(strings.Repeat("x", int(size)))), err
}

func (w *memoryWorker) Delete(_ context.Context, container, object string) error {
	return w.do("delete", container, object, func() error {
		delete(w.containers[container], object)
		return nil
	})
}

func (w *memoryWorker) List(_ context.Context, container, prefix string) (int64, error) {
	return 10, w.do("list", container, prefix, func() error { return nil })
}

func (w *memoryWorker) Close() {}

func newMemory() *memory {
	return &memory{containers: map[string]map[string]int64{}, log: map[string][]string{}}
}

// drive runs a workload on a store in memory.
func drive(t *testing.T, m *memory, stages string, options Options) (*Result, error) {
	t.Helper()
	w, err := Read(strings.NewReader(`<workload name="t"><storage type="memory"/><workflow>` + stages + `</workflow></workload>`))
	must.Succeed(t, err)
	k := store.All()
	k.Storage["memory"] = store.Kind[store.Opener]{New: func(store.Config) (store.Opener, error) { return m.open, nil }}
	p, err := MakePlan(w, k)
	must.Succeed(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return Run(ctx, p, options)
}

func stage(name, works string) string {
	return `<workstage name="` + name + `">` + works + `</workstage>`
}

const (
	initial  = `<workstage name="init"><work type="init" workers="3" config="containers=r(1,2)"/></workstage>`
	prepared = `<workstage name="prepare"><work type="prepare" workers="3" config="containers=r(1,2);objects=r(1,10);sizes=c(2)KB"/></workstage>`
)

// TestWorkflow checks the effects of init, prepare, main, cleanup and dispose.
func TestWorkflow(t *testing.T) {
	m := newMemory()
	result, err := drive(t, m, initial+prepared, Options{})
	if err != nil || result.State != "finished" {
		t.Fatal(result.State, err)
	}
	for _, name := range []string{"mycontainers1", "mycontainers2"} {
		if len(m.containers[name]) != 10 || m.containers[name]["myobjects7"] != 2000 {
			t.Errorf("%s holds %v", name, m.containers[name])
		}
	}
	prepare := result.Stages[1].Operations[0]
	if prepare.Samples != 20 || prepare.Bytes != 40_000 || prepare.Workers != 3 || prepare.Label() != "prepare-write" {
		t.Errorf("prepare: %+v", prepare.Metrics)
	}
	if created := result.Stages[0].Operations[0]; created.All != 0 { // containers are no samples
		t.Errorf("init: %+v", created.Metrics)
	}
	// A list of containers divides them, so there are two workers.
	main := stage("main", `<work name="m" workers="2" totalOps="402"><operation type="read" ratio="50" config="containers=u(1,2);objects=u(1,10)"/>
<operation type="write" ratio="20" config="containers=u(1,2);objects=u(11,20);sizes=u(1,3)KB;chunked=true"/>
<operation type="delete" ratio="20" config="containers=u(1,2);objects=u(11,30)"/>
<operation type="list" ratio="10" config="containers=u(1,2)" division="none"/></work>`)
	if result, err = drive(t, m, main, Options{Seed: 5}); err != nil {
		t.Fatal(err)
	}
	var all, failures int64
	for _, o := range result.Stages[0].Operations {
		all += o.All
		failures += o.All - o.Samples
		if o.All < 10 {
			t.Errorf("%s: %+v", o.Label(), o.Metrics)
		}
	}
	if all != 402 || failures != 0 {
		t.Errorf("%d operations, %d failed", all, failures)
	}
	clean := stage("cleanup", `<work type="cleanup" workers="2" config="containers=r(1,2);objects=r(1,30)"/>`) +
		stage("dispose", `<work type="dispose" workers="1" config="containers=r(1,2)"/>`)
	if result, err = drive(t, m, clean, Options{}); err != nil || result.Stages[0].Operations[0].Samples != 60 || len(m.containers) != 0 {
		t.Errorf("%v: left %v, %+v", err, m.containers, result.Stages[0].Operations[0].Metrics)
	}
}

// TestSameSeedSameRequests checks that each worker's requests depend on the seed, and only on the
// seed.
func TestSameSeedSameRequests(t *testing.T) {
	main := stage("main", `<work name="m" workers="3" totalOps="90" afr="1000000"><operation type="read" ratio="50" config="containers=u(1,2);objects=u(1,100)"/>
<operation type="delete" ratio="50" config="containers=u(1,2);objects=u(1,100)" division="object"/></work>`)
	var logs []map[string][]string
	for _, seed := range []uint64{1, 1, 2} {
		m := newMemory()
		_, err := drive(t, m, main, Options{Seed: seed})
		must.Succeed(t, err)
		logs = append(logs, m.log)
	}
	same := func(a, b map[string][]string) bool {
		return maps.EqualFunc(a, b, func(x, y []string) bool { return slices.Equal(x, y) })
	}
	if !same(logs[0], logs[1]) || same(logs[0], logs[2]) || len(logs[0]) != 3 {
		t.Errorf("the same seed: same %v; another: same %v", same(logs[0], logs[1]), same(logs[0], logs[2]))
	}
}

// TestFailures checks the counts by kind. Beyond its afr, a stage fails, but the run continues.
func TestFailures(t *testing.T) {
	m := newMemory()
	main := `<work name="m" workers="2" totalOps="100" afr="%d"><operation type="read" config="containers=c(1);objects=c(1)"/></work>`
	result, err := drive(t, m, stage("a", fmt.Sprintf(main, 999_999))+stage("b", fmt.Sprintf(main, 1_000_000)), Options{})
	if err != nil || result.State != "failed" || result.Stages[0].State != "failed" || result.Stages[1].State != "completed" {
		t.Fatal(err, result.State, result.Stages[0].State, result.Stages[1].State)
	}
	o := result.Stages[0].Operations[0]
	if o.Samples != 0 || o.All != 100 || o.Failures[0] != 100 || failureKinds[0] != store.NotFound {
		t.Errorf("%+v %v", o.Metrics, o.Failures)
	}
	// A failure to create a container ends the run, and later stages are aborted.
	m.fail = func(what, container, _ string) error {
		if what == "create" && container == "mycontainers2" {
			return &store.Error{Kind: store.Server, Status: 503, Message: "no"}
		}
		return nil
	}
	result, err = drive(t, m, initial+prepared, Options{})
	must.Refuse(t, err, "s1-init: container mycontainers2 could not be created: no (server, 503)")
	if result.State != "terminated" || result.Stages[0].State != "terminated" || result.Stages[1].State != "aborted" {
		t.Error(result.State, result.Stages[0].State, result.Stages[1].State)
	}
}

// TestInterrupted checks that a cancelled run ends soon, with its measurements.
func TestInterrupted(t *testing.T) {
	m := newMemory()
	p := plan(t, workload(strings.Replace(reading, `runtime="1"`, `runtime="3600"`, 1)))
	p.stages[0].works[0].open = m.open
	m.containers["mycontainers1"], m.containers["mycontainers2"] = map[string]int64{}, map[string]int64{}
	ctx, cancel := context.WithCancel(context.Background())
	enough := 0
	m.fail = func(string, string, string) error {
		if enough++; enough == 200 {
			cancel()
		}
		return nil
	}
	result, err := Run(ctx, p, Options{})
	if !errors.Is(err, context.Canceled) && err != nil || result.State != "cancelled" || result.Stages[0].State != "aborted" {
		t.Fatal(err, result.State, result.Stages[0].State)
	}
	if o := result.Stages[0].Operations[0]; o.All < 190 {
		t.Errorf("only %d requests are kept", o.All)
	}
}

// TestOpenLoop checks that an operation waits for a busy worker and that its wait counts.
func TestOpenLoop(t *testing.T) {
	m := newMemory()
	m.containers["mycontainers1"] = map[string]int64{"myobjects1": 5}
	first := true
	m.fail = func(string, string, string) error {
		if first {
			time.Sleep(200 * time.Millisecond)
		}
		first = false
		return nil
	}
	main := stage("main", `<work name="m" workers="1" totalOps="50"><operation type="read" config="containers=c(1);objects=c(1)"/></work>`)
	result, err := drive(t, m, main, Options{OpenLoop: &Rate{PerSecond: 1000}})
	must.Succeed(t, err)
	// Fifty operations are due within 50 ms; the first takes 200 ms, so all end after 200 ms.
	o := result.Stages[0].Operations[0]
	if o.Samples != 50 || o.Histogram.Min() < 150*time.Millisecond {
		t.Errorf("%d samples, the shortest %v", o.Samples, o.Histogram.Min())
	}
}

// TestAnOpenLoopOfPreparationIsRefused checks an option that does not fit the workload.
func TestAnOpenLoopOfPreparationIsRefused(t *testing.T) {
	prepare := stage("m", `<work name="m" workers="1" totalOps="1"><operation type="prepare" config="containers=r(1,2);objects=r(1,2);sizes=c(1)B"/></work>`)
	_, err := drive(t, newMemory(), prepare, Options{OpenLoop: &Rate{PerSecond: 1}})
	must.Refuse(t, err, "closed loop")
}

// TestWholeSeconds checks that the measured seconds of the series cover the window.
func TestWholeSeconds(t *testing.T) {
	m := newMemory()
	m.fail = func(string, string, string) error { time.Sleep(time.Millisecond); return errMissing }
	main := stage("main", `<work name="m" workers="1" rampup="1" runtime="1" afr="1000000"><operation type="read" config="containers=c(1);objects=c(1)"/></work>`)
	result, err := drive(t, m, main, Options{})
	must.Succeed(t, err)
	s := result.Stages[0]
	var measured, errors int64
	for _, at := range s.Seconds {
		if at.Measured {
			measured++
			errors += at.Errors
		}
	}
	o := s.Operations[0]
	// A request that began before the window and ended in it, or the like, may be in one and not the other.
	if measured != 1 || errors < o.All-2 || errors > o.All+2 || o.All == 0 {
		t.Errorf("%d measured seconds with %d requests, %d in the window: %+v", measured, errors, o.All, s.Seconds)
	}
}

// TestWorksSideBySide checks that a stage's works run in parallel and number operations on.
func TestWorksSideBySide(t *testing.T) {
	m := newMemory()
	m.containers["mycontainers1"] = map[string]int64{"myobjects1": 100}
	result, err := drive(t, m, stage("main", `
<work name="one" workers="2" totalOps="20"><operation type="read" config="containers=c(1);objects=c(1)"/></work>
<work name="two" workers="1" totalOps="4"><operation type="write" config="containers=c(1);objects=c(2);sizes=c(70)B;hashCheck=true"/></work>
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
	if got := strings.Join(titles, ", "); got != "one op1 read, two op2 write, three op3 read, three op4 list" {
		t.Error(got)
	}
	if writes := s.Operations[1]; writes.Samples != 4 || writes.Bytes != 280 || m.containers["mycontainers1"]["myobjects2"] != 70 {
		t.Errorf("write %+v, %v", writes.Metrics, m.containers)
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

// TestCleanupRemovesContainers checks containers that several workers share.
func TestCleanupRemovesContainers(t *testing.T) {
	m := newMemory()
	_, err := drive(t, m, initial+prepared, Options{})
	must.Succeed(t, err)
	var warnings []string
	clean := stage("cleanup", `<work type="cleanup" workers="4" config="containers=r(1,2);objects=r(1,10);deleteContainer=true"/>`)
	result, err := drive(t, m, clean, Options{Warn: func(text string) { warnings = append(warnings, text) }})
	if err != nil || len(m.containers) != 0 || result.Stages[0].Operations[0].Samples != 20 || len(warnings) > 1 {
		t.Errorf("%v: %v remain, warnings %v", err, m.containers, warnings)
	}
}

// TestCorruptObjects checks that corrupt objects are a kind of failure.
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
