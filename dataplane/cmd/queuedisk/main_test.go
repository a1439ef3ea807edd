package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mainEnv makes this test binary run as queuedisk, so that tests run the real program.
const mainEnv = "QUEUEDISK_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" {
		main()
		return
	}
	_ = os.Setenv(mainEnv, "1") // for the processes that tests start
	os.Exit(m.Run())
}

func TestBadInputIsOneSentenceAndExitTwo(t *testing.T) {
	dir := t.TempDir()
	good := []string{"--layer", filepath.Join(dir, "l"), "--size", "1MiB", "--mount", dir}
	with := func(more ...string) []string { return append(append([]string{}, good...), more...) }
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "--layer is missing"},
		{[]string{"--layer", "x"}, "--mount is missing"},
		{with("--positioning", "4"), `"4" is not a time`},
		{with("--positioning", "-4ms"), "positioning time is -4ms"},
		{with("--bandwidth", "60Mbit"), "is not a bandwidth"},
		{with("--bandwidth", "0"), "the bandwidth is 0"},
		{with("--size", "12G"), "is not a size"},
		{with("--nonsense"), "not defined"},
		{[]string{"check", "--load", "1"}, "--load is 1"},
		{[]string{"check", "--requests", "1"}, "--requests is 1"},
		{[]string{"check", "--size", "5000001"}, "multiples of 4096"},
		{[]string{"check", "--size", "0"}, "the size is 0"},
	} {
		out, err := exec.Command(os.Args[0], c.args...).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 {
			t.Errorf("%q: %v, want exit 2; %s", c.args, err, out)
		}
		text := strings.TrimSpace(string(out))
		if !strings.Contains(text, c.want) || strings.Contains(text, "\n") {
			t.Errorf("%q: %q, want one line with %q", c.args, text, c.want)
		}
	}
}
