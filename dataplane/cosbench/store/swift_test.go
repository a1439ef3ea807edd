package store

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hotbed/dataplane/tests/must"
)

// swiftSession logs in with TempAuth.
func swiftSession(t *testing.T, server *fakeSwift) Session {
	t.Helper()
	session, err := logIn(t, "swauth", "username=test:tester;password=test-key;auth_url="+server.AuthURL())
	must.Succeed(t, err)
	return session
}

func TestSwiftKeepsTheContract(t *testing.T) {
	server := newFakeSwift(t)
	s := opened(t, "swift", "timeout=60000;policy=gold", swiftSession(t, server)).(*swift)
	contract(t, s, "my containers1")
	if err := s.CreateContainer(t.Context(), "c"); err != nil || server.Store.Policy("c") != "gold" {
		t.Errorf("%v, policy %q", err, server.Store.Policy("c"))
	}
	if server.Store.Logins() != 1 {
		t.Errorf("%d logins", server.Store.Logins())
	}
}

func TestTheConfigsTokenAndURLAreTakenWithoutAnAuthType(t *testing.T) {
	server := newFakeSwift(t)
	s := opened(t, "swift", "token="+server.Store.Token()+";storage_url="+server.StorageURL()+"/", Session{}).(*swift)
	contract(t, s, "c")
	// As in COSBench, the session's values override the config's.
	s = opened(t, "swift", "token=old;storage_url=http://127.0.0.1:1/v1/other", swiftSession(t, server)).(*swift)
	contract(t, s, "c")
}

// TestManyWorkersRenewATokenOnce expires the token under eight workers: no operation fails, and one
// worker logs in.
func TestManyWorkersRenewATokenOnce(t *testing.T) {
	server := newFakeSwift(t)
	session := swiftSession(t, server)
	first := opened(t, "swift", "", session).(*swift)
	must.Succeed(t, first.CreateContainer(t.Context(), "c"))
	server.Store.Expire()
	var all sync.WaitGroup
	for range 8 {
		s := opened(t, "swift", "", session).(*swift)
		all.Go(func() {
			for range 20 {
				if err := s.Put(t.Context(), "c", "o", strings.NewReader("abc"), 3); err != nil {
					t.Error(err)
				}
				body, err := s.Get(t.Context(), "c", "o")
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

func TestATokenIsRenewedBeforeItRunsOut(t *testing.T) {
	server := newFakeSwift(t)
	s := opened(t, "swift", "", swiftSession(t, server)).(*swift)
	if left := time.Until(s.renewAt); left < 23*time.Hour || left > 24*time.Hour {
		t.Errorf("renewed in %v", left)
	}
	s.renewAt = time.Now().Add(-time.Second)
	if err := s.CreateContainer(t.Context(), "c"); err != nil || server.Store.Logins() != 2 {
		t.Errorf("%v, %d logins", err, server.Store.Logins())
	}
}

func TestATokenThatIsNeverTakenIsAnErrorAndNotALoop(t *testing.T) {
	server := newFakeSwift(t)
	server.Before(func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "", http.StatusUnauthorized)
		return true
	})
	s := opened(t, "swift", "", swiftSession(t, server)).(*swift)
	hasKind(t, s.CreateContainer(t.Context(), "c"), Auth, "PUT c", "Unauthorized", "tx1")
	if server.Store.Logins() != 2 {
		t.Errorf("%d logins", server.Store.Logins())
	}
	server.Store.Key = "changed"
	hasKind(t, s.CreateContainer(t.Context(), "c"), Auth, `does not let user "test:tester" in`)
}

func TestStatusesHaveKinds(t *testing.T) {
	server := newFakeSwift(t)
	s := opened(t, "swift", "", swiftSession(t, server)).(*swift)
	var answer atomic.Int64
	server.Before(func(w http.ResponseWriter, r *http.Request) bool {
		// A server that repeats the request's token.
		http.Error(w, r.Header.Get("X-Auth-Token"), int(answer.Load()))
		return true
	})
	for status, want := range map[int]string{301: Server, 400: Other, 403: Auth,
		404: NotFound, 408: Timeout, 411: Other, 429: Server, 498: Server, 500: Server,
		503: Server, 507: Server} {
		answer.Store(int64(status))
		for _, err := range []error{s.Put(t.Context(), "c", "o", strings.NewReader("x"), 1),
			s.CreateContainer(t.Context(), "c")} {
			hasKind(t, err, want)
			if err != nil && strings.Contains(err.Error(), s.session.Token) {
				t.Error("the token is shown")
			}
		}
	}
}

// TestFaults makes a server fail in every possible way; afterwards the store must work normally.
func TestFaults(t *testing.T) {
	hold := make(chan bool)
	server := newFakeSwift(t)
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
		"closed": {Refused, "broke", func(w http.ResponseWriter) { _ = hijack(w).Close() }},
		"reset": {Refused, "broke", func(w http.ResponseWriter) {
			conn := hijack(w)
			_ = conn.SetLinger(0)
			_ = conn.Close()
		}},
		"short body": {Refused, "before it should", func(w http.ResponseWriter) {
			conn := hijack(w)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
			_ = conn.Close()
		}},
		"stalled": {Timeout, "", func(http.ResponseWriter) { <-hold }},
		"stalled in the body": {Timeout, "", func(w http.ResponseWriter) {
			_, _ = io.WriteString(hijack(w), "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
		}},
		"garbage": {Server, "not HTTP", func(w http.ResponseWriter) {
			conn := hijack(w)
			_, _ = io.WriteString(conn, "hello\r\n\r\n")
			_ = conn.Close()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			config := ""
			if test.kind == Timeout {
				config = "timeout=50"
			}
			s := opened(t, "swift", config, swiftSession(t, server)).(*swift)
			server.Before(func(w http.ResponseWriter, _ *http.Request) bool { test.fault(w); return true })
			body, err := s.Get(t.Context(), "c", "o")
			if err == nil {
				_, err = io.Copy(io.Discard, body)
				_ = body.Close()
			}
			hasKind(t, err, test.kind, test.text, "GET c/o")
			server.Before(nil)
			s = opened(t, "swift", "", s.session).(*swift)
			if err := s.CreateContainer(t.Context(), "c"); err != nil {
				t.Error(err)
			}
		})
	}
}

// counting returns a proxy of a Swift that counts requests.
func counting(t *testing.T, swift *httptest.Server, count *atomic.Int64) *httptest.Server {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		count.Add(1)
		swift.Config.Handler.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	return proxy
}

// TestProxiesTakeTurns also kills a proxy: its requests fail first, then the others get all.
func TestProxiesTakeTurns(t *testing.T) {
	server := newFakeSwift(t)
	var addresses []string
	counts := make([]atomic.Int64, 3)
	proxies := make([]*httptest.Server, len(counts))
	for i := range counts {
		proxies[i] = counting(t, server.Server, &counts[i])
		addresses = append(addresses, proxies[i].Listener.Addr().String())
	}
	s := opened(t, "swift", "proxies="+strings.Join(addresses, ", "), swiftSession(t, server)).(*swift)
	do := func(n int) (failed int) {
		for range n {
			if err := s.CreateContainer(t.Context(), "c"); err != nil {
				hasKind(t, err, Refused, addresses[1])
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
	proxies[1].Close()
	// One failure when its connection is found closed, and then none for a while.
	failed, n := do(30), got()
	if failed < 1 || n[1] != 10 || n[0]+n[2] < 40 {
		t.Errorf("%d failed; requests: %v", failed, n)
	}
	proxies[0].Close()
	proxies[2].Close()
	for range 6 {
		hasKind(t, s.CreateContainer(t.Context(), "c"), Refused, "refused")
	}
}

// TestProxiesOfAFile adds and removes proxies between requests, as machines of a microstore.
func TestProxiesOfAFile(t *testing.T) {
	server := newFakeSwift(t)
	counts := make([]atomic.Int64, 2)
	var urls []string
	for i := range counts {
		urls = append(urls, counting(t, server.Server, &counts[i]).URL)
	}
	path := filepath.Join(t.TempDir(), "tenant.json")
	list := func(proxies []string) {
		t.Helper()
		text, err := json.Marshal(map[string]any{"key": "secret", "proxies": proxies})
		must.Succeed(t, err, os.WriteFile(path+".new", text, 0o600), os.Rename(path+".new", path))
	}
	list(urls[:1])
	s := opened(t, "swift", "proxies_file="+path, swiftSession(t, server)).(*swift)
	for i, step := range []struct {
		change func()
		want   [2]int64 // of four requests
	}{
		{func() {}, [2]int64{4, 0}},
		{func() { list(urls) }, [2]int64{2, 2}},
		{func() { list(urls[1:]) }, [2]int64{0, 4}},
		{func() { list(nil) }, [2]int64{0, 4}}, // with no proxies or no file, the known proxies stay in use
		{func() { _ = os.Remove(path) }, [2]int64{0, 4}},
	} {
		step.change()
		s.file.mu.Lock()
		s.file.due = time.Time{} // the next request looks at the file
		s.file.mu.Unlock()
		before := [2]int64{counts[0].Load(), counts[1].Load()}
		for range 4 {
			must.Succeed(t, s.CreateContainer(t.Context(), "c"))
		}
		if got := [2]int64{counts[0].Load() - before[0], counts[1].Load() - before[1]}; got != step.want {
			t.Errorf("step %d: the proxies got %v of four requests, not %v", i, got, step.want)
		}
	}
}

func TestBadFilesOfProxies(t *testing.T) {
	server := newFakeSwift(t)
	for content, text := range map[string]string{
		`{"proxies": []}`:              `no JSON with a list "proxies"`,
		`{`:                            `no JSON with a list "proxies"`,
		`{"proxies": ["http://a/b"]}`:  "which is not host:port",
		"-":                            "no such file",
		`{"proxies": ["10.0.0.1:80"]}`: "",
	} {
		path := filepath.Join(t.TempDir(), "proxies.json")
		if content != "-" {
			must.Succeed(t, os.WriteFile(path, []byte(content), 0o600))
		}
		_, err := made(t, "swift", "proxies_file="+path, swiftSession(t, server))
		if text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
			t.Errorf("%s: %v", content, err)
		}
	}
	_, err := made(t, "swift", "storage_url=http://x;proxies=a:1;proxies_file=b", swiftSession(t, server))
	must.Refuse(t, err, "leave one out")
}
