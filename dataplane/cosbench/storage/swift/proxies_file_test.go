package swift

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hotbed/dataplane/cosbench/storage/storagetest"
)

// TestProxiesOfAFile come and go while requests are made, as machines of a microstore do.
func TestProxiesOfAFile(t *testing.T) {
	server := storagetest.NewSwift(t)
	counts := make([]atomic.Int64, 2)
	var urls []string
	for i := range counts {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		urls = append(urls, "http://"+listener.Addr().String())
		proxy := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			counts[i].Add(1)
			server.Config.Handler.ServeHTTP(w, r)
		})}
		go func() { _ = proxy.Serve(listener) }()
		defer func() { _ = proxy.Close() }()
	}
	path := filepath.Join(t.TempDir(), "tenant.json")
	tell := func(proxies ...string) {
		quoted := make([]string, len(proxies))
		for i, proxy := range proxies {
			quoted[i] = fmt.Sprintf("%q", proxy)
		}
		text := `{"key": "secret", "proxies": [` + strings.Join(quoted, ", ") + `]}`
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	tell(urls[0])
	s := openStore(t, "proxies_file="+path, login(t, server))
	one := func() {
		t.Helper()
		if err := s.CreateContainer(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
	}
	one()
	if counts[0].Load() == 0 || counts[1].Load() != 0 {
		t.Fatalf("requests: %d, %d", counts[0].Load(), counts[1].Load())
	}
	until := func(what string, holds func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !holds(); {
			one()
			if time.Now().After(end) {
				t.Fatal(what)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	tell(urls...)
	until("the second proxy is never asked", func() bool { return counts[1].Load() > 0 })
	before := counts[0].Load()
	one()
	one()
	if counts[0].Load() != before+1 {
		t.Error("they do not take turns")
	}
	tell(urls[1])
	until("the first proxy is asked for ever", func() bool {
		first := counts[0].Load()
		one()
		one()
		return counts[0].Load() == first
	})
	// Nobody at all, or no file: those that were known are asked.
	for _, spoil := range []func(){func() { tell() }, func() { _ = os.Remove(path) }} {
		spoil()
		for end := time.Now().Add(1200 * time.Millisecond); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			one()
		}
	}
}

func TestBadFilesOfProxies(t *testing.T) {
	server := storagetest.NewSwift(t)
	for content, text := range map[string]string{
		`{"proxies": []}`:              `no JSON with a list "proxies"`,
		`{`:                            `no JSON with a list "proxies"`,
		`{"proxies": ["http://a/b"]}`:  "which is not host:port",
		"-":                            "cannot be read",
		`{"proxies": ["10.0.0.1:80"]}`: "",
	} {
		path := filepath.Join(t.TempDir(), "proxies.json")
		if content != "-" {
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := Open(parse(t, "proxies_file="+path), login(t, server))
		if text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
			t.Errorf("%s: %v", content, err)
		}
	}
	_, err := Open(parse(t, "storage_url=http://x;proxies=a:1;proxies_file=b"), login(t, server))
	if err == nil || !strings.Contains(err.Error(), "leave one out") {
		t.Error(err)
	}
}
