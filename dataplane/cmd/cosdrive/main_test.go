package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hotbed/dataplane/cosbench"
	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/tests/must"
)

const workload = `<workload name="demo"><auth type="mock" config="token=hush;delay=0"/><storage type="mock" config="size=100;delay=0"/>
<workflow><workstage name="init"><work type="init" workers="1" config="containers=r(1,2)"/></workstage>
<workstage name="main"><work name="main" workers="2" totalOps="20">
<operation type="read" config="containers=u(1,2);objects=u(1,10)"/></work></workstage></workflow></workload>`

// TestMistakes checks that each mistake gives one sentence that names the mistake.
func TestMistakes(t *testing.T) {
	good := must.Write(t, "w.xml", workload)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"walk"}, "say what to do"},
		{[]string{"run"}, "missing: cosdrive run WORKLOAD.xml"},
		{[]string{"run", "--seed", "3"}, "missing: cosdrive run WORKLOAD.xml"},
		{[]string{"run", good}, "--archive is missing"},
		{[]string{"run", good, "--fast"}, "-fast"},
		{[]string{"run", "/nowhere.xml", "--archive", "x"}, "/nowhere.xml"},
		{[]string{"run", good, "--archive", "/dev/null/x"}, "--archive"},
		{[]string{"run", good, "--archive", "x", "--open-loop", "fast"}, `"fast" is no rate`},
		{[]string{"run", good, "--archive", "x", "--open-loop", "NaN"}, `is no rate`},
		{[]string{"run", good, "--archive", "x", "--only-stage", "warm"}, `no stage "warm"`},
		{[]string{"check", must.Write(t, "w.xml", strings.Replace(workload, `"read"`, `"copy"`, 1))}, `line 4, operation "copy": type "copy" is not supported`},
		{[]string{"check", must.Write(t, "w.xml", strings.Replace(workload, `type="mock" config="size=100`, `type="ampli" config="`, 1))}, `line 1, storage "ampli"`},
	} {
		err := cosdrive(context.Background(), c.args, new(bytes.Buffer))
		var usage command.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, not about %s", c.args, err, c.says)
		}
	}
}

// TestRun checks that a run reports progress and leaves an archive without the secret.
func TestRun(t *testing.T) {
	path, archive := must.Write(t, "w.xml", workload), filepath.Join(t.TempDir(), "archive")
	for number, id := range []string{"w1-demo", "w2-demo"} {
		var out bytes.Buffer
		args := []string{"run", path, "--archive", archive, "--seed", "3"}
		if number == 1 {
			args = []string{"run", "--archive", archive, "--seed", "3", path, "--only-stage", "main", "--open-loop", "100000:constant"}
		}
		must.Succeed(t, cosdrive(context.Background(), args, &out))
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

// TestInterrupted checks that an interrupted run saves its results and reports the interruption.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	archive := t.TempDir()
	err := cosdrive(ctx, []string{"run", must.Write(t, "w.xml", workload), "--archive", archive}, new(bytes.Buffer))
	history, _ := os.ReadFile(filepath.Join(archive, "run-history.csv"))
	if err == nil || !strings.Contains(string(history), ",cancelled,") {
		t.Errorf("%v, history %s", err, history)
	}
}
