package command

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
)

func TestWhatEndsAProgram(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		says   string
	}{
		{nil, 0, ""},
		{flag.ErrHelp, 0, ""},
		{errors.New("the disk is full"), 1, "prog: the disk is full\n"},
		{Usagef("--size is %d", 3), 2, "prog: --size is 3\n"},
		{Usage(errors.New("no such file")), 2, "prog: no such file\n"},
		{fmt.Errorf("cluster: %w", Usagef("--node is missing")), 2, "prog: cluster: --node is missing\n"},
	} {
		var reported strings.Builder
		if got := status(&reported, "prog", c.err); got != c.status || reported.String() != c.says {
			t.Errorf("%v: status %d and %q, not %d and %q", c.err, got, reported.String(), c.status, c.says)
		}
	}
}

func TestAWrongFlagOrArgumentIsOneSentence(t *testing.T) {
	for want, args := range map[string][]string{
		"flag provided but not defined: -nowhere; `prog verb --help` lists the flags": {"--nowhere"},
		"unexpected argument \"more\"; `prog verb --help` lists the flags":            {"--n", "3", "more"},
	} {
		flags := flag.NewFlagSet("prog verb", flag.ContinueOnError)
		flags.Int("n", 0, "")
		err := Parse(flags, args, "[flags]")
		if usage := (UsageError{}); !errors.As(err, &usage) || err.Error() != want {
			t.Errorf("%v: %v, not %s", args, err, want)
		}
	}
	flags := flag.NewFlagSet("prog", flag.ContinueOnError)
	n := flags.Int("n", 0, "")
	if err := Parse(flags, []string{"--n", "3"}, "[flags]"); err != nil || *n != 3 {
		t.Errorf("%v and %d", err, *n)
	}
	if err := Parse(flags, []string{"--help"}, "[flags]"); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("asked for help: %v", err)
	}
}
