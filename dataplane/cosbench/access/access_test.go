package access

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func parse(t *testing.T, text string) Config {
	t.Helper()
	config, err := ParseConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestConfig(t *testing.T) {
	c := parse(t, " a = 1 ; b=x=y;;a=2;on=TRUE;f=0.5;ms=1500;empty=")
	if got := c.Keys(); !slices.Equal(got, []string{"a", "b", "empty", "f", "ms", "on"}) {
		t.Error(got)
	}
	if got := c.Unasked(); len(got) != 6 {
		t.Error(got)
	}
	a, errA := c.Int("a", 0)
	f, errF := c.Float("f", 0)
	on, errOn := c.Bool("on", false)
	ms, errMs := c.Milliseconds("ms", 0)
	if a != 2 || f != 0.5 || !on || ms != 1500*time.Millisecond || c.String("b", "") != "x=y" || errors.Join(errA, errF, errOn, errMs) != nil {
		t.Error(a, f, on, ms, c.String("b", ""), errA, errF, errOn, errMs)
	}
	if got := c.Unasked(); !slices.Equal(got, []string{"empty"}) {
		t.Error(got)
	}
	missing, err := c.Milliseconds("none", time.Minute)
	if missing != time.Minute || err != nil || c.String("none", "z") != "z" {
		t.Error(missing, err)
	}
	if _, err := c.Required("empty"); err == nil || !strings.Contains(err.Error(), "empty is missing") {
		t.Error(err)
	}
	for _, read := range []func() error{
		func() error { _, err := c.Int("b", 0); return err },
		func() error { _, err := c.Float("b", 0); return err },
		func() error { _, err := c.Bool("b", false); return err },
		func() error { _, err := c.Milliseconds("b", 0); return err },
		func() error { _, err := parse(t, "b=-1").Milliseconds("b", 0); return err },
		func() error { _, err := parse(t, "b=NaN").Float("b", 0); return err },
	} {
		if err := read(); err == nil || !strings.Contains(err.Error(), "b=") {
			t.Errorf("%v", err)
		}
	}
	if _, err := ParseConfig("password=a;bc"); err == nil || strings.Contains(err.Error(), "bc") {
		t.Errorf("%v: half of a password is shown, or taken", err)
	}
	if value, found := (Config{}).Lookup("a"); found || value != "" {
		t.Error("the zero Config has something")
	}
}

func TestKindOf(t *testing.T) {
	for kind, err := range map[string]error{
		NotFound: fmt.Errorf("reading: %w", &Error{Kind: NotFound, Status: 404, Message: "no"}),
		Timeout:  fmt.Errorf("x: %w", os.ErrDeadlineExceeded),
		Refused:  &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
		Client:   errors.New("whatever"),
		Server:   &Error{Kind: Server, Message: "no"},
	} {
		if got := KindOf(err); got != kind {
			t.Errorf("%v is %s, not %s", err, got, kind)
		}
	}
	if got := KindOf(context.DeadlineExceeded); got != Timeout {
		t.Error(got)
	}
	if text := (&Error{Kind: Server, Status: 503, Message: "busy"}).Error(); text != "busy (server, 503)" {
		t.Error(text)
	}
}
