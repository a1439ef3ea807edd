package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/tests/must"
	testprocess "hotbed/dataplane/tests/process"
	"hotbed/dataplane/tests/servertest"
)

// printed runs a verb and returns the JSON that it prints, and its error.
func printed(t *testing.T, verb string, flags ...string) (map[string]any, error) {
	t.Helper()
	text, failed := testprocess.Output(t, func() error { return verbs[verb](t.Context(), flags) })
	out := map[string]any{}
	if err := json.Unmarshal(text, &out); err != nil && failed == nil {
		t.Fatal(err)
	}
	return out, failed
}

func TestABurstIsWrittenVerifiedAndReported(t *testing.T) {
	path := servertest.Start(t, 3).Path
	ledger := filepath.Join(t.TempDir(), "ledger")
	flags := []string{"--cluster", path, "--nodes", "2", "--processes", "3", "--writes", "2", "--size", "20KiB"}
	out, err := printed(t, "write", append(flags, "--ledger", ledger)...)
	if err != nil || out["writes"] != 12.0 || out["bytes"] != 12*20480.0 || len(out["process_seconds"].([]any)) != 6 {
		t.Fatalf("%v %v", out, err)
	}
	if out, err := printed(t, "verify", "--cluster", path, "--ledger", ledger); err != nil || out["objects"] != 12.0 ||
		len(out["bad"].([]any)) != 0 {
		t.Errorf("%v %v", out, err)
	}
	out, err = printed(t, "status", "--cluster", path)
	must.Succeed(t, err)
	logged := 0.0
	for _, agent := range out["agents"].([]any) {
		logged += agent.(map[string]any)["has"].(map[string]any)["logged"].(float64)
	}
	if logged < 12 {
		t.Errorf("%v", out)
	}
	// Another burst over the same file makes the first ledger wrong.
	_, err = printed(t, "write", append(flags, "--seed", "2")...)
	must.Succeed(t, err)
	out, err = printed(t, "verify", "--cluster", path, "--ledger", ledger)
	if must.Refuse(t, err, "12 of 12"); len(out["bad"].([]any)) != 12 {
		t.Errorf("%v", out)
	}
	out, err = printed(t, "probe", "--cluster", path, "--servers", "3", "--schedulers", "2", "--times", "20")
	if err != nil || out["probes"] != 40.0 || out["lost"] != 0.0 || out["mean_seconds"].(float64) <= 0 {
		t.Errorf("%v %v", out, err)
	}
}

func TestMistakesOnTheCommandLineAreOneSentence(t *testing.T) {
	folder := t.TempDir()
	path, ledger := filepath.Join(folder, "cluster.json"), filepath.Join(folder, "ledger")
	must.Succeed(t, os.WriteFile(path, []byte(`{"agents": ["127.0.0.1:1"], "key_file": "k"}`), 0o600),
		os.WriteFile(ledger, []byte("{}\nnone\n"), 0o600))
	for want, args := range map[string][]string{
		"--cluster is missing": {"write"},
		"not defined":          {"probe", "--colour"},
		"--size":               {"write", "--cluster", path, "--size", "big"},
		"0 nodes":              {"write", "--cluster", path, "--nodes", "0"},
		"not there yet":        {"write", "--cluster", path, "--ledger", ledger},
		"--ledger names":       {"verify", "--cluster", path},
		"line 2 of":            {"verify", "--cluster", path, "--ledger", ledger},
		"--servers is 2":       {"probe", "--cluster", path, "--servers", "2"},
		"--schedulers and":     {"probe", "--cluster", path, "--servers", "1", "--times", "0"},
		"cluster file cannot":  {"probe", "--cluster", folder + "/none"},
	} {
		err := verbs[args[0]](t.Context(), args[1:])
		var usage command.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", args, err)
		}
	}
}
