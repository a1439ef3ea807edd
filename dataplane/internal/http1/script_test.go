package http1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"hotbed/dataplane/tests/must"
)

// patience is longer than any wait in a test that does not test timeouts.
const patience = time.Minute

// scripted is a server that runs a function on each connection.
type scripted struct {
	address string
	asked   chan *http.Request // each request, after it was read
}

func script(t *testing.T, serve func(s *scripted, conn *net.TCPConn, in *bufio.Reader)) *scripted {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	s := &scripted{listener.Addr().String(), make(chan *http.Request, 100)}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				serve(s, conn.(*net.TCPConn), bufio.NewReader(conn))
			}()
		}
	}()
	return s
}

// request reads one whole request.
func (s *scripted) request(in *bufio.Reader) *http.Request {
	r, err := http.ReadRequest(in)
	if err != nil {
		return nil
	}
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.asked <- r
	return r
}

func say(conn net.Conn, text string) { _, _ = io.WriteString(conn, text) }

// answers serves the same text for each request.
func answers(t *testing.T, text string) *scripted {
	return script(t, func(s *scripted, conn *net.TCPConn, in *bufio.Reader) {
		for s.request(in) != nil {
			say(conn, text)
		}
	})
}

func open(t *testing.T, address string, timeout time.Duration) *Conn {
	c := New(address, Options{Timeout: timeout})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func get(t *testing.T, c *Conn) (*Response, string) {
	t.Helper()
	r, err := c.Do(t.Context(), &Request{Method: "GET", Target: "/x"})
	must.Succeed(t, err)
	body, err := io.ReadAll(r)
	must.Succeed(t, err)
	return r, string(body)
}

func reason(t *testing.T, err error, want Reason, text string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Reason != want || !strings.Contains(e.Error(), text) {
		t.Errorf("error %v, not of reason %d with %q", err, want, text)
	}
}

func TestARequestGoesOverTheWireAsItShould(t *testing.T) {
	s := answers(t, "HTTP/1.1 201 Created\r\nX-One:  1 \r\nx-two:2\r\nContent-Length: 2\r\n\r\nok")
	c := open(t, s.address, patience)
	for _, length := range []int64{5, -1} {
		r, err := c.Do(t.Context(), &Request{Method: "PUT", Target: "/v1/a%20b?c=d", Host: "store:80",
			Fields: []Field{{"X-Auth-Token", "secret"}, {"X-Empty", ""}}, Body: strings.NewReader("hello"), Length: length})
		must.Succeed(t, err)
		body, err := io.ReadAll(r)
		if err != nil || string(body) != "ok" || r.Status != 201 || r.Reason() != "Created" || r.Header("X-one") != "1" ||
			r.Header("X-Two") != "2" || r.Header("X") != "" || r.Length != 2 {
			t.Errorf("%q, %v, %v", body, err, r)
		}
		q := <-s.asked
		sent, _ := io.ReadAll(q.Body)
		if q.Method != "PUT" || q.RequestURI != "/v1/a%20b?c=d" || q.Host != "store:80" || string(sent) != "hello" ||
			q.Header.Get("X-Auth-Token") != "secret" || len(q.Header["X-Empty"]) != 1 || q.ContentLength != length {
			t.Errorf("%v with %q", q, sent)
		}
	}
}

func TestWhatIsNotHTTPIsRefused(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for name, answer := range map[string]string{
		"another protocol":   "SSH-2.0-OpenSSH_9\r\n\r\n",
		"version 2":          "HTTP/2.0 200 OK\r\n\r\n",
		"no status":          "HTTP/1.1 OK 200\r\n\r\n",
		"status 99":          "HTTP/1.1 099 OK\r\n\r\n",
		"status 2000":        "HTTP/1.1 2000 OK\r\n\r\n",
		"no colon":           ok + "Content-Length 5\r\n\r\n",
		"a space in a name":  ok + "Content-Length : 5\r\n\r\n",
		"a continued line":   ok + "X: a\r\n b\r\n\r\n",
		"negative length":    ok + "Content-Length: -1\r\n\r\n",
		"signed length":      ok + "Content-Length: +1\r\n\r\n",
		"two lengths":        ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
		"a huge length":      ok + "Content-Length: 99999999999999999999\r\n\r\n",
		"gzip":               ok + "Transfer-Encoding: gzip, chunked\r\n\r\n",
		"a bad chunk":        ok + "Transfer-Encoding: chunked\r\n\r\nx\r\n",
		"a long chunk":       ok + "Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
		"upgrade":            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
		"a long line":        ok + "X: " + strings.Repeat("x", 2*readAhead) + "\r\n\r\n",
		"a long header":      ok + strings.Repeat("X: "+strings.Repeat("x", 1000)+"\r\n", 300) + "\r\n",
		"interim for ever":   strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", interimMax+1),
		"chunks in HTTP/1.0": "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t, answers(t, answer).address, patience)
			r, err := c.Do(t.Context(), &Request{Method: "GET", Target: "/"})
			if err == nil {
				_, err = io.Copy(io.Discard, r)
			}
			reason(t, err, Malformed, "not HTTP/1.1")
			if c.conn != nil {
				t.Error("the connection is kept")
			}
		})
	}
}

func TestWhatCannotBeSentIsRefused(t *testing.T) {
	c := open(t, "127.0.0.1:1", patience)
	for name, q := range map[string]Request{
		"a line break in a value":  {Method: "GET", Target: "/", Fields: []Field{{"X", "a\r\nY: b"}}},
		"a line break in a name":   {Method: "GET", Target: "/", Fields: []Field{{"X\r\nY", "a"}}},
		"a space in the target":    {Method: "GET", Target: "/a b"},
		"no target":                {Method: "GET"},
		"a target without a slash": {Method: "GET", Target: "a"},
		"a line break in the host": {Method: "GET", Target: "/", Host: "a\r\nX: b"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.Do(t.Context(), &q)
			reason(t, err, Wrong, "")
		})
	}
	_, err := c.Do(t.Context(), &Request{Method: "PUT", Target: "/", Body: strings.NewReader("abc"), Length: 5})
	reason(t, err, BadBody, "2 bytes before")
	broken := errors.New("the disk is gone")
	_, err = c.Do(t.Context(), &Request{Method: "PUT", Target: "/", Body: io.MultiReader(strings.NewReader("abc"),
		failing{broken}), Length: -1})
	if reason(t, err, BadBody, "disk"); !errors.Is(err, broken) {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestAnUnreachableServerHasItsOwnReason(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	_ = listener.Close()
	_, err = open(t, listener.Addr().String(), patience).Do(t.Context(), &Request{Method: "GET", Target: "/"})
	reason(t, err, Unreached, "refused")
	never := Options{Timeout: time.Millisecond, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	_, err = New("x:1", never).Do(t.Context(), &Request{Method: "GET", Target: "/"})
	if reason(t, err, Unreached, "1ms"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

func TestAnswersAreReadWhateverTheirForm(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for _, test := range []struct {
		name, answer, body string
		ends               bool // the connection
	}{
		{"nothing", "HTTP/1.1 204 No Content\r\n\r\n", "", false},
		{"no length, no content", ok + "Content-Length: 0\r\n\r\n", "", false},
		{"no reason", "HTTP/1.1 200\r\nContent-Length: 1\r\n\r\na", "a", false},
		{"lines without a return", "HTTP/1.1 200 OK\nContent-Length: 1\n\na", "a", false},
		{"twice the same length", ok + "Content-Length: 1\r\ncontent-length: 1\r\n\r\na", "a", false},
		{"chunks", ok + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n00a;x=\"y\"\r\n0123456789\r\n0\r\n\r\n", "abc0123456789", false},
		{"chunks and a trailer", ok + "Transfer-Encoding: Chunked\r\n\r\n1 \r\na\r\n0\r\nX: y\r\n\r\n", "a", false},
		{"interim answers", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + ok + "Content-Length: 1\r\n\r\na", "a", false},
		{"version 1.0 that stays", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na", "a", false},
		{"close", ok + "Connection: x, Close\r\nContent-Length: 1\r\n\r\na", "a", true},
		{"close, nothing", "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", "", true},
		{"all to the end", ok + "\r\na", "a", true},
		{"version 1.0", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", "a", true},
		{"close and chunks", ok + "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", "a", true},
		{"more than was asked for", ok + "Content-Length: 1\r\n\r\na+HTTP/1.1 200 OK\r\n\r\n", "a", true},
		{"more, but after an answer", "HTTP/1.1 204 No Content\r\n\r\nx", "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := script(t, func(s *scripted, conn *net.TCPConn, in *bufio.Reader) {
				for s.request(in) != nil {
					if say(conn, test.answer); test.ends {
						return
					}
				}
			})
			c := open(t, s.address, patience)
			for range 3 {
				if _, body := get(t, c); body != test.body || !test.ends && c.conn == nil {
					t.Errorf("%q, and the connection is there: %v", body, c.conn != nil)
				}
			}
			if len(s.asked) != 3 {
				t.Errorf("%d requests", len(s.asked))
			}
		})
	}
}
