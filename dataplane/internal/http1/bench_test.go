package http1

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/tests/must"
)

// serving is set if the test program is the benchmark's server: a separate process, so that only
// the client's CPU time is measured.
const serving = "HTTP1_BENCHMARK_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(serving) == "" {
		os.Exit(m.Run())
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusCreated)
			return
		}
		size, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		w.Header().Set("Content-Length", strconv.Itoa(size))
		_, _ = w.Write(zeros[:size])
	}))
	fmt.Println(server.URL)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the benchmark ends
	server.Close()
}

var zeros = make([]byte, 16<<20)

func benchmarkServer(b *testing.B) string {
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), serving+"=1")
	in, err := command.StdinPipe()
	must.Succeed(b, err)
	out, err := command.StdoutPipe()
	must.Succeed(b, err)
	must.Succeed(b, command.Start())
	b.Cleanup(func() {
		_ = in.Close()
		_ = command.Wait()
	})
	var url string
	if _, err := fmt.Fscanln(out, &url); err != nil {
		b.Fatal(err)
	}
	return url
}

// BenchmarkRequest measures the CPU time per request, of this client and of net/http's.
func BenchmarkRequest(b *testing.B) {
	url := benchmarkServer(b)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ours := New(strings.TrimPrefix(url, "http://"), Options{Timeout: 30 * time.Second})
	defer func() { _ = ours.Close() }()
	clients := map[string]func(method string, size int) error{
		"http1": func(method string, size int) error {
			q := Request{Method: method, Target: "/" + strconv.Itoa(size),
				Fields: []Field{{"X-Auth-Token", "AUTH_tk0123456789"}}}
			if method == "PUT" {
				q.Body, q.Length = bytes.NewReader(zeros[:size]), int64(size)
			}
			r, err := ours.Do(ctx, &q)
			if err == nil {
				_, err = io.Copy(io.Discard, r)
			}
			return err
		},
		"net-http": func(method string, size int) error {
			var body io.Reader
			if method == "PUT" {
				body = bytes.NewReader(zeros[:size])
			}
			q, err := http.NewRequestWithContext(ctx, method, url+"/"+strconv.Itoa(size), body)
			if err != nil {
				return err
			}
			q.Header.Set("X-Auth-Token", "AUTH_tk0123456789")
			r, err := http.DefaultClient.Do(q)
			if err == nil {
				_, err = io.Copy(io.Discard, r.Body)
				_ = r.Body.Close()
			}
			return err
		},
	}
	for _, method := range []string{"GET", "PUT"} {
		for _, size := range []int{1 << 10, 64 << 10, 4 << 20} {
			for _, client := range []string{"http1", "net-http"} {
				b.Run(fmt.Sprintf("%s/%d/%s", method, size, client), func(b *testing.B) {
					do := clients[client]
					must.Succeed(b, do(method, size))
					b.ReportAllocs()
					b.ResetTimer()
					before := command.ProcessorTime()
					for range b.N {
						must.Succeed(b, do(method, size))
					}
					b.ReportMetric(float64((command.ProcessorTime()-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
				})
			}
		}
	}
}
