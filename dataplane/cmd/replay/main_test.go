package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/internal/replay"
	"hotbed/dataplane/tests/memnfs"
	"hotbed/dataplane/tests/must"
	"hotbed/dataplane/tests/process"
)

func TestMistakesGetASentence(t *testing.T) {
	trace := must.Write(t, "t", "x\n")
	good := []string{"--server", "127.0.0.1:1", "--file", "f", "--trace", trace}
	for _, c := range []struct {
		verb string
		args []string
		want string
	}{
		{"run", nil, "--server is"},
		{"run", []string{"--server", "127.0.0.1:1", "--file", "a/b"}, "--file is"},
		{"run", good[:4], "--trace is missing"},
		{"run", good, "no request in it"},
		{"run", append(good, "--repeat"), "--repeat needs"},
		{"run", append(good, "--closed", "-1"), "--closed is"},
		{"run", append(good, "--connections", "0"), "--connections is"},
		{"load", good[:4], "--duration is missing"},
		{"load", append(good[:4:4], "--size", "x"), "--size"},
		{"prepare", append(good[:4:4], "--size", "1.5"), "--size"},
		{"check", append(good[:4:4], "--connections", "65"), "--connections is 65"},
		{"check", append(good[:4:4], "--steps", "0"), "--steps 0"},
	} {
		err := verbs[c.verb](context.Background(), c.args)
		var usage command.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s %q: %v; want a sentence with %q", c.verb, c.args, err, c.want)
		}
	}
}

func TestPrepareThenLoadThenRun(t *testing.T) {
	server := memnfs.Start(t, &memnfs.Server{})
	folder := t.TempDir()
	trace, log := filepath.Join(folder, "t"), filepath.Join(folder, "log")
	must.Succeed(t, os.WriteFile(trace, []byte("9,1000,DiskRead\n10,1000,DiskWrite,2000\n"), 0o644))
	target := []string{"--server", server.Address(), "--file", "f"}
	ctx := context.Background()
	if err := run(ctx, append(target, "--trace", trace)); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that is not there: %v", err)
	}
	for _, size := range []string{"1MB", "500kB"} { // prepare does not shrink the file
		must.Succeed(t, prepare(ctx, append(target, "--size", size)))
	}
	var result replay.Result
	text, err := process.Output(t, func() error {
		return load(ctx, append(target, "--size", "64KiB", "--depth", "3", "--duration", "100ms"))
	})
	if err := errors.Join(err, json.Unmarshal(text, &result)); err != nil || result.Whole.Requests == 0 || len(result.Errors) > 0 {
		t.Errorf("%s, %v", text, err)
	}
	text, err = process.Output(t, func() error {
		return run(ctx, append(target, "--trace", trace, "--log", log, "--slo", "1h"))
	})
	result = replay.Result{}
	if err := errors.Join(err, json.Unmarshal(text, &result)); err != nil || result.Whole.Requests != 2 || result.Mode != "open" {
		t.Errorf("%s, %v", text, err)
	}
	if lines, err := os.ReadFile(log); err != nil || strings.Count(string(lines), "\n") != 2 {
		t.Errorf("the log is %q, %v", lines, err)
	}
	if err := run(ctx, append(target, "--trace", trace, "--log", log)); err == nil ||
		!strings.Contains(err.Error(), "there already") {
		t.Errorf("over an old log: %v", err)
	}
}

func TestCheckComparesWhatTheServerKeeps(t *testing.T) {
	server := memnfs.Start(t, &memnfs.Server{})
	args := []string{"--server", server.Address(), "--file", "f", "--steps", "50"}
	var said struct {
		Same       bool
		Operations int
	}
	text, err := process.Output(t, func() error { return check(context.Background(), args) })
	if err := errors.Join(err, json.Unmarshal(text, &said)); err != nil || !said.Same || said.Operations != 100 {
		t.Errorf("it printed %s (%v)", text, err)
	}
}
