package swift

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hotbed/dataplane/cosbench/access"
	"hotbed/dataplane/cosbench/auth"
	"hotbed/dataplane/cosbench/storage/storagetest"
)

func parse(t *testing.T, config string) access.Config {
	t.Helper()
	parsed, err := access.ParseConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// login is a session by TempAuth.
func login(t *testing.T, server *storagetest.Swift) auth.Session {
	t.Helper()
	session, err := auth.Types()["swauth"].Open(t.Context(), parse(t, "username=test:tester;password=test-key;auth_url="+
		server.AuthURL()))
	if err != nil {
		t.Fatal(err)
	}
	return session
}

func openStore(t *testing.T, config string, session auth.Session) *store {
	t.Helper()
	parsed := parse(t, config)
	s, err := Open(parsed, session)
	if err != nil {
		t.Fatal(err)
	}
	if unasked := parsed.Unasked(); unasked != nil {
		t.Errorf("not asked for: %v", unasked)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.(*store)
}

func kind(t *testing.T, err error, want string, texts ...string) {
	t.Helper()
	var e *access.Error
	if !errors.As(err, &e) || e.Kind != want {
		t.Errorf("error %v, not of kind %s", err, want)
		return
	}
	for _, text := range texts {
		if !strings.Contains(e.Message, text) {
			t.Errorf("%q is not in %q", text, e.Message)
		}
	}
}

func TestTheContract(t *testing.T) {
	server := storagetest.NewSwift(t)
	s := openStore(t, "timeout=60000;policy=gold", login(t, server))
	storagetest.Contract(t, s, "my containers1", storagetest.Traits{})
	if err := s.CreateContainer(t.Context(), "c"); err != nil || server.Store.Policy("c") != "gold" {
		t.Errorf("%v, policy %q", err, server.Store.Policy("c"))
	}
	if server.Store.Logins() != 1 {
		t.Errorf("%d logins", server.Store.Logins())
	}
}

func TestTheConfigsTokenAndURLAreTakenWithoutAnAuthType(t *testing.T) {
	server := storagetest.NewSwift(t)
	s := openStore(t, "token="+server.Store.Token()+";storage_url="+server.StorageURL()+"/", auth.Session{})
	storagetest.Contract(t, s, "c", storagetest.Traits{})
	// As in COSBench, a session's go before them.
	s = openStore(t, "token=old;storage_url=http://127.0.0.1:1/v1/other", login(t, server))
	storagetest.Contract(t, s, "c", storagetest.Traits{})
}

// TestManyWorkersRenewATokenOnce has the token run out under eight workers: none of their operations fails,
// and one of them logs in.
func TestManyWorkersRenewATokenOnce(t *testing.T) {
	server := storagetest.NewSwift(t)
	session := login(t, server)
	first := openStore(t, "", session)
	if err := first.CreateContainer(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	server.Store.Expire()
	var all sync.WaitGroup
	for range 8 {
		s := openStore(t, "", session)
		all.Go(func() {
			for range 20 {
				if err := s.Put(t.Context(), "c", "o", strings.NewReader("abc"), 3); err != nil {
					t.Error(err)
				}
				body, _, err := s.Get(t.Context(), "c", "o")
				if err != nil {
					t.Error(err)
					continue
				}
				if text, err := io.ReadAll(body); err != nil || string(text) != "abc" {
					t.Errorf("%q %v", text, err)
				}
			}
		})
	}
	all.Wait()
	if server.Store.Logins() != 2 {
		t.Errorf("%d logins", server.Store.Logins())
	}
}

func TestABodyThatCannotBeRewoundFailsOnceWhenATokenRunsOut(t *testing.T) {
	server := storagetest.NewSwift(t)
	s := openStore(t, "", login(t, server))
	if err := s.CreateContainer(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	server.Store.Expire()
	put := func() error {
		return s.Put(t.Context(), "c", "o", io.MultiReader(strings.NewReader("abc")), 3)
	}
	err := put()
	kind(t, err, access.Auth, "PUT c/o", "cannot be sent again")
	if err := put(); err != nil {
		t.Error(err)
	}
}

func TestATokenIsRenewedBeforeItRunsOut(t *testing.T) {
	server := storagetest.NewSwift(t)
	s := openStore(t, "", login(t, server))
	if left := time.Until(s.renewAt); left < 23*time.Hour || left > 24*time.Hour {
		t.Errorf("renewed in %v", left)
	}
	s.renewAt = time.Now().Add(-time.Second)
	if err := s.CreateContainer(t.Context(), "c"); err != nil || server.Store.Logins() != 2 {
		t.Errorf("%v, %d logins", err, server.Store.Logins())
	}
}

func TestATokenThatIsNeverTakenIsAnErrorAndNotALoop(t *testing.T) {
	server := storagetest.NewSwift(t)
	server.Before(func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "", http.StatusUnauthorized)
		return true
	})
	s := openStore(t, "", login(t, server))
	kind(t, s.CreateContainer(t.Context(), "c"), access.Auth, "PUT c", "Unauthorized", "tx1")
	if server.Store.Logins() != 2 {
		t.Errorf("%d logins", server.Store.Logins())
	}
	server.Store.Key = "changed"
	kind(t, s.CreateContainer(t.Context(), "c"), access.Auth, "does not let test:tester in")
}

func TestStatusesHaveKinds(t *testing.T) {
	server := storagetest.NewSwift(t)
	s := openStore(t, "", login(t, server))
	var answer atomic.Int64
	server.Before(func(w http.ResponseWriter, r *http.Request) bool {
		// A server that repeats what it was told.
		http.Error(w, r.Header.Get("X-Auth-Token"), int(answer.Load()))
		return true
	})
	for status, want := range map[int]string{301: access.Server, 400: access.Client, 403: access.Auth,
		404: access.NotFound, 408: access.Timeout, 411: access.Client, 429: access.Server, 498: access.Server, 500: access.Server,
		503: access.Server, 507: access.Server} {
		answer.Store(int64(status))
		for _, err := range []error{s.Put(t.Context(), "c", "o", strings.NewReader("x"), 1),
			s.CreateContainer(t.Context(), "c")} {
			kind(t, err, want)
			if err != nil && strings.Contains(err.Error(), s.session.Token) {
				t.Error("the token is shown")
			}
		}
	}
}

// TestFaults has a server break in each way that there is; afterwards the store is used as if nothing had
// been.
func TestFaults(t *testing.T) {
	hold := make(chan bool)
	server := storagetest.NewSwift(t)
	t.Cleanup(func() { close(hold) }) // before the server is closed
	hijack := func(w http.ResponseWriter) *net.TCPConn {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
		}
		return conn.(*net.TCPConn)
	}
	for name, test := range map[string]struct {
		kind, text string
		fault      func(w http.ResponseWriter)
	}{
		"closed": {access.Refused, "broke", func(w http.ResponseWriter) { _ = hijack(w).Close() }},
		"reset": {access.Refused, "broke", func(w http.ResponseWriter) {
			conn := hijack(w)
			_ = conn.SetLinger(0)
			_ = conn.Close()
		}},
		"short body": {access.Refused, "before it should", func(w http.ResponseWriter) {
			conn := hijack(w)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
			_ = conn.Close()
		}},
		"stalled": {access.Timeout, "", func(http.ResponseWriter) { <-hold }},
		"stalled in the body": {access.Timeout, "", func(w http.ResponseWriter) {
			_, _ = io.WriteString(hijack(w), "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
		}},
		"garbage": {access.Server, "not HTTP", func(w http.ResponseWriter) {
			conn := hijack(w)
			_, _ = io.WriteString(conn, "hello\r\n\r\n")
			_ = conn.Close()
		}},
		"overloaded": {access.Server, "Service Unavailable", func(w http.ResponseWriter) { http.Error(w, "", http.StatusServiceUnavailable) }},
	} {
		t.Run(name, func(t *testing.T) {
			config := ""
			if test.kind == access.Timeout {
				config = "timeout=50"
			}
			s := openStore(t, config, login(t, server))
			server.Before(func(w http.ResponseWriter, _ *http.Request) bool { test.fault(w); return true })
			body, _, err := s.Get(t.Context(), "c", "o")
			if err == nil {
				_, err = io.Copy(io.Discard, body)
				_ = body.Close()
			}
			kind(t, err, test.kind, test.text, "GET c/o")
			server.Before(nil)
			s = openStore(t, "", s.session)
			if err := s.CreateContainer(t.Context(), "c"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAnEarlyAnswerToALargeObject(t *testing.T) {
	server := storagetest.NewSwift(t)
	s := openStore(t, "", login(t, server))
	server.Before(func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "", http.StatusInsufficientStorage)
		return true
	})
	err := s.Put(t.Context(), "c", "o", io.LimitReader(zeros{}, 64<<20), 64<<20)
	kind(t, err, access.Server, "Insufficient Storage")
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// TestProxiesTakeTurns also kills one: what it gets fails, and then the others get all.
func TestProxiesTakeTurns(t *testing.T) {
	server := storagetest.NewSwift(t)
	var addresses []string
	counts := make([]atomic.Int64, 3)
	proxies := make([]*http.Server, len(counts))
	for i := range counts {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, listener.Addr().String())
		proxies[i] = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			counts[i].Add(1)
			server.Config.Handler.ServeHTTP(w, r)
		})}
		go func() { _ = proxies[i].Serve(listener) }()
		defer func() { _ = proxies[i].Close() }()
	}
	s := openStore(t, "proxies="+strings.Join(addresses, ", "), login(t, server))
	do := func(n int) (failed int) {
		for range n {
			if err := s.CreateContainer(t.Context(), "c"); err != nil {
				kind(t, err, access.Refused, addresses[1])
				failed++
			}
		}
		return failed
	}
	got := func() (n [3]int64) {
		for i := range counts {
			n[i] = counts[i].Load()
		}
		return n
	}
	if failed := do(30); failed > 0 || got() != [3]int64{10, 10, 10} {
		t.Errorf("%d failed; requests: %v", failed, got())
	}
	_ = proxies[1].Close()
	// Once the connection that it had is found closed, and not again for a while.
	failed, n := do(30), got()
	if failed < 1 || n[1] != 10 || n[0]+n[2] < 40 {
		t.Errorf("%d failed; requests: %v", failed, n)
	}
	_ = proxies[0].Close()
	_ = proxies[2].Close()
	for range 6 {
		kind(t, s.CreateContainer(t.Context(), "c"), access.Refused, "refused")
	}
}

func TestACalledOffOperation(t *testing.T) {
	server := storagetest.NewSwift(t)
	s := openStore(t, "", login(t, server))
	asked, hold := make(chan bool), make(chan bool)
	server.Before(func(http.ResponseWriter, *http.Request) bool { asked <- true; <-hold; return true })
	defer close(hold)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	err := s.Delete(ctx, "c", "o")
	if kind(t, err, access.Client, "called off"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestBadConfigs(t *testing.T) {
	for config, text := range map[string]string{
		"":                                "no storage_url",
		"storage_url=ftp://x":             "storage_url is not a store's URL",
		"storage_url=http://x;proxies=,":  "proxies has",
		"storage_url=http://x;timeout=1s": "timeout=1s",
		"storage_url=http://x;logging=2":  "logging=2",
	} {
		if _, err := Open(parse(t, config), auth.Session{}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", config, err)
		}
	}
}
