package main

import (
	"errors"
	"strings"
	"testing"

	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/twochoice/protocol"
)

func TestSeedsAndBreakagesAreRead(t *testing.T) {
	for _, c := range []struct {
		args     []string
		from, to uint64
		breaks   protocol.Break
	}{
		{nil, 0, 500, protocol.Sound},
		{[]string{"--seeds", "7:9"}, 7, 9, protocol.Sound},
		{[]string{"--seed", "4711", "--trace"}, 4711, 4712, protocol.Sound},
		{[]string{"--break", "no-fence", "--seed", "3"}, 3, 4, protocol.NoFence},
	} {
		o, err := parse(c.args)
		if err != nil || o.from != c.from || o.to != c.to || o.breaks != c.breaks {
			t.Errorf("%q: %+v, %v", c.args, o, err)
		}
	}
}

func TestMistakesOnTheCommandLineAreOneSentence(t *testing.T) {
	for want, args := range map[string][]string{
		"write the first":         {"--seeds", "9:9"},
		"such as 0:500":           {"--seeds", "3"},
		"seeds are":               {"--seed", "x"},
		"--trace is of one run":   {"--trace"},
		"ack-before-sync, ack-be": {"--break", "all"},
		"unexpected argument":     {"x"},
		"not defined":             {"--colour"},
	} {
		_, err := parse(args)
		var usage command.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestABrokenProtocolIsReportedWithItsReplay(t *testing.T) {
	if err := run([]string{"--seeds", "0:3", "--json"}); err != nil {
		t.Error(err)
	}
	err := run([]string{"--seeds", "0:20", "--break", "order-twice", "--first", "--json"})
	if err == nil || !strings.Contains(err.Error(), "seeds failed") {
		t.Error(err)
	}
}
