package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/internal/replay"
	"hotbed/dataplane/tests/memnfs"
)

func TestMistakesGetASentence(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "t")
	if err := os.WriteFile(trace, []byte("x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
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
		{"run", append(good, "more"), "unexpected argument"},
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

// printed returns the bytes that f writes to standard output.
func printed(t *testing.T, f func() error) []byte {
	t.Helper()
	old := os.Stdout
	defer func() { os.Stdout = old }()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout = out
	text := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(in)
		text <- all
	}()
	err = f()
	_ = out.Close()
	all := <-text
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestPrepareThenLoadThenRun(t *testing.T) {
	server := memnfs.Server{FS: memnfs.NewFS()}
	if err := server.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	folder := t.TempDir()
	trace, log := filepath.Join(folder, "t"), filepath.Join(folder, "log")
	if err := os.WriteFile(trace, []byte("9,1000,DiskRead\n10,1000,DiskWrite,2000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	target := []string{"--server", server.Address(), "--file", "f"}
	ctx := context.Background()
	if err := run(ctx, append(target, "--trace", trace)); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that is not there: %v", err)
	}
	for _, size := range []string{"1MB", "500kB"} { // prepare does not shrink the file
		if err := prepare(ctx, append(target, "--size", size)); err != nil {
			t.Fatal(err)
		}
	}
	var result replay.Result
	text := printed(t, func() error {
		return load(ctx, append(target, "--size", "64KiB", "--depth", "3", "--duration", "100ms"))
	})
	if err := json.Unmarshal(text, &result); err != nil || result.Whole.Requests == 0 || len(result.Errors) > 0 {
		t.Errorf("%s, %v", text, err)
	}
	text = printed(t, func() error {
		return run(ctx, append(target, "--trace", trace, "--log", log, "--slo", "1h"))
	})
	result = replay.Result{}
	if err := json.Unmarshal(text, &result); err != nil || result.Whole.Requests != 2 || result.Mode != "open" {
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
	server := memnfs.Server{FS: memnfs.NewFS()}
	if err := server.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	args := []string{"--server", server.Address(), "--file", "f", "--steps", "50"}
	var said struct {
		Same       bool
		Operations int
	}
	text := printed(t, func() error { return check(context.Background(), args) })
	if err := json.Unmarshal(text, &said); err != nil || !said.Same || said.Operations != 100 {
		t.Errorf("it printed %s (%v)", text, err)
	}
}
