package mock

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"hotbed/dataplane/cosbench/access"
	"hotbed/dataplane/cosbench/auth"
	"hotbed/dataplane/cosbench/storage"
)

func open(t *testing.T, config string) storage.Storage {
	t.Helper()
	parsed, err := access.ParseConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(parsed, auth.Session{})
	if err != nil {
		t.Fatal(err)
	}
	if unasked := parsed.Unasked(); unasked != nil {
		t.Errorf("not asked for: %v", unasked)
	}
	return s
}

func TestItAnswersAsItsConfigSays(t *testing.T) {
	s := open(t, "size=5000;delay=0")
	body, length, err := s.Get(t.Context(), "c", "o")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, body); n != 5000 || length != 5000 || err != nil {
		t.Errorf("%d of %d bytes, %v", n, length, err)
	}
	n, list := s.List(t.Context(), "c", "")
	if err := errors.Join(s.CreateContainer(t.Context(), "c"), s.Put(t.Context(), "c", "o", strings.NewReader("abc"), 3),
		s.Put(t.Context(), "c", "o", strings.NewReader("abc"), -1), s.Delete(t.Context(), "c", "o"),
		s.DeleteContainer(t.Context(), "c"), list); err != nil || n != 0 {
		t.Error(n, err)
	}
	if err := s.Put(t.Context(), "c", "o", strings.NewReader("abc"), 4); access.KindOf(err) != access.Client {
		t.Error(err)
	}
}

func TestItFailsAsOftenAsItsConfigSays(t *testing.T) {
	s := open(t, "delay=0;errors=0.25")
	failed := 0
	for range 4000 {
		if err := s.Delete(t.Context(), "c", "o"); access.KindOf(err) == access.Server {
			failed++
		}
	}
	if failed < 800 || failed > 1200 {
		t.Errorf("%d of 4000 failed", failed)
	}
}

func TestADelayIsCalledOff(t *testing.T) {
	s := open(t, "delay=3600000")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Delete(ctx, "c", "o"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestNoneDoesNothing(t *testing.T) {
	s, err := OpenNone(access.Config{}, auth.Session{})
	if err != nil {
		t.Fatal(err)
	}
	body, length, err := s.Get(t.Context(), "c", "o")
	if err != nil || length != 0 {
		t.Fatal(length, err)
	}
	if text, err := io.ReadAll(body); len(text) != 0 || err != nil {
		t.Errorf("%q %v", text, err)
	}
}

func TestBadConfigs(t *testing.T) {
	for config, text := range map[string]string{"size=-1": "size=-1", "delay=x": "delay=x", "errors=2": "share",
		"printing=true": "printing=true is not supported", "doStats=3": "doStats=3"} {
		parsed, err := access.ParseConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(parsed, auth.Session{}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", config, err)
		}
	}
}
