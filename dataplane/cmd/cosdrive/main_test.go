package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hotbed/dataplane/cosbench"
)

const workload = `<workload name="demo"><auth type="mock" config="token=hush;delay=0"/><storage type="mock" config="size=100;delay=0"/>
<workflow><workstage name="init"><work type="init" workers="1" config="containers=r(1,2)"/></workstage>
<workstage name="main"><work name="main" workers="2" totalOps="20">
<operation type="read" config="containers=u(1,2);objects=u(1,10)"/></work></workstage></workflow></workload>`

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "w.xml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestMistakes are one sentence each, which names what is wrong.
func TestMistakes(t *testing.T) {
	good := file(t, workload)
	for _, c := range []struct {
		args []string
		says string
	}{
		{nil, "say what to do"},
		{[]string{"walk"}, "say what to do"},
		{[]string{"run"}, "name the workload"},
		{[]string{"run", good}, "--archive is missing"},
		{[]string{"run", good, "more"}, `unexpected argument "more"`},
		{[]string{"run", good, "--fast"}, "-fast"},
		{[]string{"run", "/nowhere.xml", "--archive", "x"}, "/nowhere.xml"},
		{[]string{"run", good, "--archive", "/dev/null/x"}, "--archive"},
		{[]string{"run", good, "--archive", "x", "--open-loop", "fast"}, `"fast" is no rate`},
		{[]string{"run", good, "--archive", "x", "--open-loop", "10:uniform"}, `is no rate`},
		{[]string{"run", good, "--archive", "x", "--open-loop", "NaN"}, `is no rate`},
		{[]string{"run", good, "--archive", "x", "--only-stage", "warm"}, `no stage "warm"`},
		{[]string{"run", good, "--archive", t.TempDir(), "--listen", "nowhere"}, "--listen"},
		{[]string{"check", file(t, strings.Replace(workload, `"read"`, `"copy"`, 1))}, `line 4, operation "copy": type "copy" is not supported`},
		{[]string{"check", file(t, strings.Replace(workload, `type="mock" config="size=100`, `type="ampli" config="`, 1))}, `line 1, storage "ampli"`},
	} {
		err := cosdrive(context.Background(), c.args, new(bytes.Buffer))
		var usage usageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, not about %s", c.args, err, c.says)
		}
	}
}

// TestRun has a run tell its progress and leave its archive; the secret is in none of it.
func TestRun(t *testing.T) {
	path, archive := file(t, workload), filepath.Join(t.TempDir(), "archive")
	for number, id := range []string{"w1-demo", "w2-demo"} {
		var out bytes.Buffer
		args := []string{"run", path, "--archive", archive, "--json", "--seed", "3"}
		if number == 1 {
			args = append(args, "--only-stage", "main", "--open-loop", "100000:constant")
		}
		if err := cosdrive(context.Background(), args, &out); err != nil {
			t.Fatal(err)
		}
		var last cosbench.Event
		stages := map[string]string{}
		for lines := bufio.NewScanner(&out); lines.Scan(); {
			last = cosbench.Event{}
			if err := json.Unmarshal(lines.Bytes(), &last); err != nil {
				t.Fatalf("%s: %v", lines.Text(), err)
			}
			stages[last.Stage] = last.State
		}
		if last.Event != "done" || last.State != "finished" || last.Ops != 20 || last.Folder != filepath.Join(archive, id) ||
			stages["s2-main"] != "completed" || (stages["s1-init"] == "") != (number == 1) {
			t.Errorf("%+v after %v", last, stages)
		}
	}
	err := filepath.WalkDir(archive, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte("hush")) {
			t.Errorf("the token is in %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestCheck has the plan as JSON, as XML that can be checked again, and as text.
func TestCheck(t *testing.T) {
	path := file(t, workload)
	var asJSON, asXML, again, text bytes.Buffer
	for _, c := range []struct {
		args []string
		out  *bytes.Buffer
	}{{[]string{"check", path, "--json"}, &asJSON}, {[]string{"check", "--xml", path}, &asXML}, {[]string{"check", path}, &text}} {
		if err := cosdrive(context.Background(), c.args, c.out); err != nil {
			t.Fatal(err)
		}
	}
	var plan struct {
		Stages []struct {
			ID    string
			Works []struct{ Operations []struct{ Config string } }
		}
	}
	if err := json.Unmarshal(asJSON.Bytes(), &plan); err != nil || len(plan.Stages) != 2 ||
		plan.Stages[1].Works[0].Operations[0].Config != "containers=u(1,2);objects=u(1,10)" || bytes.Contains(asJSON.Bytes(), []byte("hush")) {
		t.Errorf("%v\n%s", err, &asJSON)
	}
	if err := cosdrive(context.Background(), []string{"check", "--xml", file(t, asXML.String())}, &again); err != nil || again.String() != asXML.String() {
		t.Errorf("%v\n%s\n%s", err, &again, &asXML)
	}
	if !strings.Contains(text.String(), "main (normal): 2 workers, 20 operations") {
		t.Errorf("%s", &text)
	}
}

// TestInterrupted saves what there is, and says so.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	archive := t.TempDir()
	err := cosdrive(ctx, []string{"run", file(t, workload), "--archive", archive, "--json"}, new(bytes.Buffer))
	history, _ := os.ReadFile(filepath.Join(archive, "run-history.csv"))
	if err == nil || !strings.Contains(string(history), ",cancelled,") {
		t.Errorf("%v, history %s", err, history)
	}
}

// TestServe has progress over HTTP, from when one asks on.
func TestServe(t *testing.T) {
	s, err := serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	stream, err := http.Get("http://" + s.address + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Body.Close() }()
	s.send(cosbench.Event{Event: "snapshot", Stage: "s1-a", Work: "x", Ops: 7})
	s.send(cosbench.Event{Event: "done", State: "finished"})
	var events []cosbench.Event
	for decoder := json.NewDecoder(stream.Body); ; {
		var e cosbench.Event
		if decoder.Decode(&e) != nil {
			break
		}
		events = append(events, e)
	}
	if len(events) != 2 || events[0].Ops != 7 || events[1].State != "finished" {
		t.Errorf("%+v", events)
	}
	now, err := http.Get("http://" + s.address + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = now.Body.Close() }()
	if err := json.NewDecoder(now.Body).Decode(&events); err != nil || len(events) != 2 {
		t.Errorf("%v %+v", err, events)
	}
}

// Readers that ask for nothing, or take nothing, keep no other from reading.
func TestReadersThatStayStopNoOther(t *testing.T) {
	s, err := serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	var first net.Conn
	for i := range 2 * mostReaders {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := conn.Write([]byte("GET /events HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = conn
		}
	}
	_ = first.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.Copy(io.Discard, first); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the first of too many is there for ever")
	}
	s.send(cosbench.Event{Event: "snapshot", Stage: "s", Work: "x", Ops: 7})
	now, err := http.Get("http://" + s.address + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = now.Body.Close() }()
	var events []cosbench.Event
	if err := json.NewDecoder(now.Body).Decode(&events); err != nil || len(events) != 1 {
		t.Errorf("%v %+v", err, events)
	}
}
