package store

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"hotbed/dataplane/tests/must"
)

func TestConfig(t *testing.T) {
	c := parse(t, " a = 1 ; b=x=y;;a=2;on=TRUE;ms=1500;empty=")
	if got := c.String(); got != "a=2;b=x=y;on=TRUE;ms=1500;empty=" {
		t.Error(got)
	}
	if got := c.With(parse(t, "token=hush;b=z;password=")).String(); got != "a=2;b=z;on=TRUE;ms=1500;empty=;token=***;password=***" {
		t.Error(got)
	}
	a, errA := c.Int("a", 0)
	on, errOn := c.Bool("on", false)
	ms, errMs := c.Milliseconds("ms", 0)
	if a != 2 || !on || ms != 1500*time.Millisecond || c.Text("b", "") != "x=y" || errors.Join(errA, errOn, errMs) != nil {
		t.Error(a, on, ms, c.Text("b", ""), errA, errOn, errMs)
	}
	missing, err := c.Milliseconds("none", time.Minute)
	if missing != time.Minute || err != nil || c.Text("none", "z") != "z" {
		t.Error(missing, err)
	}
	_, err = c.Required("empty")
	must.Refuse(t, err, "empty is missing")
	for _, read := range []func() error{
		func() error { _, err := c.Int("b", 0); return err },
		func() error { _, err := c.Bool("b", false); return err },
		func() error { _, err := c.Milliseconds("b", 0); return err },
		func() error { _, err := parse(t, "b=-1").Milliseconds("b", 0); return err },
	} {
		must.Refuse(t, read(), "b=")
	}
	if _, err := ParseConfig("password=a;bc"); err == nil || strings.Contains(err.Error(), "bc") {
		t.Errorf("%v: half of a password is shown, or taken", err)
	}
	if value, found := (Config{}).Lookup("a"); found || value != "" {
		t.Error("the zero Config has something")
	}
}

func TestItAnswersAsItsConfigSays(t *testing.T) {
	s := opened(t, "mock", "size=5000;delay=0", Session{})
	body, err := s.Get(t.Context(), "c", "o")
	must.Succeed(t, err)
	if n, err := io.Copy(io.Discard, body); n != 5000 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	n, list := s.List(t.Context(), "c", "")
	if err := errors.Join(s.CreateContainer(t.Context(), "c"), s.Put(t.Context(), "c", "o", strings.NewReader("abc"), 3),
		s.Put(t.Context(), "c", "o", strings.NewReader("abc"), -1), s.Delete(t.Context(), "c", "o"),
		s.DeleteContainer(t.Context(), "c"), list); err != nil || n != 0 {
		t.Error(n, err)
	}
	if err := s.Put(t.Context(), "c", "o", strings.NewReader("abc"), 4); KindOf(err) != Other {
		t.Error(err)
	}
}

func TestItFailsAsOftenAsItsConfigSays(t *testing.T) {
	s := opened(t, "mock", "delay=0;errors=0.25", Session{})
	failed := 0
	for range 4000 {
		if err := s.Delete(t.Context(), "c", "o"); KindOf(err) == Server {
			failed++
		}
	}
	if failed < 800 || failed > 1200 {
		t.Errorf("%d of 4000 failed", failed)
	}
}

func TestADelayIsCalledOff(t *testing.T) {
	s := opened(t, "mock", "delay=3600000", Session{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Delete(ctx, "c", "o"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestMistakesInConfigs(t *testing.T) {
	for _, c := range []struct{ kind, config, text string }{
		{"mock", "size=-1", "size=-1"},
		{"mock", "delay=x", "delay=x"},
		{"mock", "errors=2", "share"},
		{"mock", "printing=true", "printing=true is not supported"},
		{"mock", "doStats=3", "doStats=3"},
		{"mock", "logging=true", "logging=true is not supported"},
		{"swift", "", "no storage_url"},
		{"swift", "storage_url=ftp://x", "storage_url is not a store's URL"},
		{"swift", "storage_url=http://x;proxies=,", "proxies has"},
		{"swift", "storage_url=http://x;timeout=1s", "timeout=1s"},
		{"s3", "", "endpoint is missing"},
		{"s3", "endpoint=http://x", "accesskey and secretkey are missing"},
		{"s3", "endpoint=http://a:b@x;accesskey=a;secretkey=b", "has a user"},
		{"s3", "endpoint=http://x;accesskey=a;secretkey=b;path_style_access=", "path_style_access"},
		{"s3", "endpoint=http://x;accesskey=a;secretkey=b;proxyhost=h", "proxyhost"},
	} {
		_, err := made(t, c.kind, c.config, Session{})
		must.Refuse(t, err, c.text)
	}
}
