package http1

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"hotbed/dataplane/tests/must"
)

// TestTheSameAsNetHTTP sends requests of many forms to a net/http server with both clients, on kept
// connections. Both clients must get the same answers, and the server the same requests.
func TestTheSameAsNetHTTP(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(strange))
	defer server.Close()
	theirs := server.Client()
	ours := open(t, server.Listener.Addr().String(), patience)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		size := []int{0, 1, 100, 4000, pieceSize - 200, pieceSize, 3*pieceSize + 17}[random.IntN(7)]
		method := []string{"GET", "PUT", "DELETE", "POST"}[random.IntN(4)]
		target := fmt.Sprintf("/v1/a%%20b/%d?form=%d&size=%d&status=%d&close=%v", i, random.IntN(3),
			random.IntN(200_000), []int{200, 201, 204, 404, 503}[random.IntN(5)], random.IntN(10) == 0)
		body := bytes.Repeat([]byte{byte(i)}, size)
		q := &Request{Method: method, Target: target, Fields: []Field{{"X-Auth-Token", strconv.Itoa(i)}}}
		var content io.Reader
		if method == "PUT" || method == "POST" {
			q.Body, q.Length, content = bytes.NewReader(body), int64(size), bytes.NewReader(body)
			if random.IntN(3) == 0 {
				q.Length, content = -1, io.MultiReader(content)
			}
		}
		r, err := ours.Do(t.Context(), q)
		if err != nil {
			t.Fatalf("%s %s: %v", method, target, err)
		}
		var got bytes.Buffer
		if n, err := r.WriteTo(&got); err != nil || r.Length >= 0 && r.Length != n {
			t.Fatalf("%s %s: %d of %d: %v", method, target, n, r.Length, err)
		}
		ask, err := http.NewRequestWithContext(t.Context(), method, server.URL+target, content)
		must.Succeed(t, err)
		ask.Header.Set("X-Auth-Token", strconv.Itoa(i))
		answer, err := theirs.Do(ask)
		must.Succeed(t, err)
		want, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || !bytes.Equal(got.Bytes(), want) || answer.StatusCode != r.Status ||
			answer.Header.Get("X-Saw") != r.Header("X-Saw") {
			t.Fatalf("%s %s: %v, saw %s, %d bytes; net/http: %d, %s, %d bytes, %v", method, target, r, r.Header("X-Saw"),
				got.Len(), answer.StatusCode, answer.Header.Get("X-Saw"), len(want), err)
		}
	}
}

// strange answers in the requested form and reports the request it saw.
func strange(w http.ResponseWriter, r *http.Request) {
	sum := sha256.New()
	n, _ := io.Copy(sum, r.Body)
	query := r.URL.Query()
	number := func(key string) int {
		n, _ := strconv.Atoi(query.Get(key))
		return n
	}
	h := w.Header()
	h.Set("X-Saw", fmt.Sprintf("%s %s %s %d %x", r.Method, r.RequestURI, r.Header.Get("X-Auth-Token"), n, sum.Sum(nil)))
	if query.Get("close") == "true" {
		h.Set("Connection", "close")
	}
	body := bytes.Repeat([]byte{'z'}, number("size"))
	if number("status") == http.StatusNoContent {
		body = nil
	} else if number("form") == 0 {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(number("status"))
	for len(body) > 0 {
		n := min(len(body), 50_000)
		_, _ = w.Write(body[:n])
		if body = body[n:]; number("form") == 2 {
			w.(http.Flusher).Flush()
		}
	}
}

// FuzzAnswer parses any bytes as an answer: an accepted answer must equal net/http's to the byte.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
		"HTTP/1.0 404 Not Found\r\n\r\n<html>no</html>",
		"HTTP/1.1 503\nContent-Length: 0\n\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c := New("x:1", Options{Dial: func(context.Context, string, string) (net.Conn, error) {
			return &heard{in: bytes.NewReader(text)}, nil
		}})
		r, err := c.Do(t.Context(), &Request{Method: "GET", Target: "/"})
		if err != nil {
			return
		}
		var got bytes.Buffer
		if _, err := r.WriteTo(&got); err != nil {
			return
		}
		answer, err := readByNetHTTP(text)
		if err != nil {
			t.Fatalf("net/http refuses it: %v", err)
		}
		want, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != r.Status || !bytes.Equal(got.Bytes(), want) {
			t.Fatalf("%v with %q; net/http %d with %q, %v", r, got.Bytes(), answer.StatusCode, want, err)
		}
		if r.keep && answer.Close {
			t.Fatal("the connection is kept, and net/http would not")
		}
	})
}

func readByNetHTTP(text []byte) (*http.Response, error) {
	in := bufio.NewReader(bytes.NewReader(text))
	for {
		answer, err := http.ReadResponse(in, &http.Request{Method: "GET"})
		if err != nil || answer.StatusCode >= 200 {
			return answer, err
		}
	}
}

// heard is a connection with a fixed answer to every request.
type heard struct {
	net.Conn
	in io.Reader
}

func (h *heard) Read(b []byte) (int, error)     { return h.in.Read(b) }
func (*heard) Write(b []byte) (int, error)      { return len(b), nil }
func (*heard) Close() error                     { return nil }
func (*heard) SetDeadline(time.Time) error      { return nil }
func (*heard) SetReadDeadline(time.Time) error  { return nil }
func (*heard) SetWriteDeadline(time.Time) error { return nil }
