package http1

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hotbed/dataplane/tests/must"
)

// TestAConnectionThatTheServerClosedIsMadeAgain also checks that no request is sent twice.
func TestAConnectionThatTheServerClosedIsMadeAgain(t *testing.T) {
	closed := make(chan bool)
	s := script(t, func(s *scripted, conn *net.TCPConn, in *bufio.Reader) {
		if s.request(in) != nil {
			say(conn, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na")
			_ = conn.Close()
			closed <- true
		}
	})
	c := open(t, s.address, patience)
	for i := range 4 {
		body := strings.NewReader("abc")
		r, err := c.Do(t.Context(), &Request{Method: "PUT", Target: "/", Body: body, Length: 3})
		if err != nil {
			t.Fatal(i, err)
		}
		_ = r.Close()
		<-closed
		must.Come(t, "the end arrives", func() bool { return c.conn == nil || !c.probe.quiet() })
	}
	if len(s.asked) != 4 {
		t.Errorf("%d requests", len(s.asked))
	}
}

func TestARequestThatWasSentIsNotSentAgain(t *testing.T) {
	s := script(t, func(s *scripted, conn *net.TCPConn, in *bufio.Reader) {
		if s.request(in) != nil {
			say(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
		s.request(in)
	})
	c := open(t, s.address, patience)
	get(t, c)
	_, err := c.Do(t.Context(), &Request{Method: "GET", Target: "/"})
	reason(t, err, Broken, "EOF")
	if len(s.asked) != 2 {
		t.Errorf("%d requests", len(s.asked))
	}
	get(t, c) // on a new connection
}

func TestAnAnswerBeforeTheWholeBodyIsHeard(t *testing.T) {
	const refusal = "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig"
	const size = 64 << 20 // more than socket buffers hold
	hold := make(chan bool)
	defer close(hold)
	for name, c := range map[string]struct {
		length  int64
		timeout time.Duration
		stays   bool
	}{
		"and the connection closed, length": {size, patience, false},
		"and the connection closed, chunks": {-1, patience, false},
		"and the connection left":           {size, 500 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := script(t, func(s *scripted, conn *net.TCPConn, in *bufio.Reader) {
				if r, err := http.ReadRequest(in); err == nil {
					s.asked <- r
					say(conn, refusal)
					if c.stays {
						<-hold
					}
				}
			})
			conn := open(t, s.address, c.timeout)
			body := io.LimitReader(letters{}, size)
			r, err := conn.Do(t.Context(), &Request{Method: "PUT", Target: "/", Body: body, Length: c.length})
			must.Succeed(t, err)
			if text := r.Excerpt(100); r.Status != 413 || string(text) != "big" || conn.conn != nil {
				t.Errorf("%v %q %v", r, text, conn.conn)
			}
			if len(s.asked) != 1 {
				t.Errorf("%d requests", len(s.asked))
			}
		})
	}
}

type letters struct{}

func (letters) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'a'
	}
	return len(b), nil
}

func TestABodyThatEndsEarlyIsAnError(t *testing.T) {
	for name, test := range map[string]struct{ answer, text string }{
		"length":  {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "7 bytes before"},
		"chunk":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", "EOF"},
		"chunks":  {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "EOF"},
		"trailer": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n", "EOF"},
	} {
		for how, reset := range map[string]bool{"closed": false, "reset": true} {
			t.Run(name+"/"+how, func(t *testing.T) {
				read := make(chan bool, 1)
				s := script(t, func(s *scripted, conn *net.TCPConn, in *bufio.Reader) {
					if s.request(in) != nil {
						say(conn, test.answer)
						<-read
						if reset {
							_ = conn.SetLinger(0)
						}
					}
				})
				c := open(t, s.address, patience)
				r, err := c.Do(t.Context(), &Request{Method: "GET", Target: "/"})
				must.Succeed(t, err)
				begin := make([]byte, 3)
				if _, err := io.ReadFull(r, begin); err != nil || string(begin) != "abc" {
					t.Fatalf("%q %v", begin, err)
				}
				read <- true
				text := test.text
				if reset && text == "EOF" {
					text = "reset"
				}
				_, err = io.Copy(io.Discard, r)
				reason(t, err, Broken, text)
			})
		}
	}
}

// hasty returns a Conn with no timeout for connecting and the given one for each later step.
func hasty(t *testing.T, address string, timeout time.Duration) *Conn {
	c := New(address, Options{Timeout: timeout, Dial: func(_ context.Context, network, address string) (net.Conn, error) {
		return net.Dial(network, address)
	}})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestAServerThatStallsIsNotWaitedForForEver(t *testing.T) {
	hold := make(chan bool)
	defer close(hold)
	for name, begin := range map[string]string{"at once": "", "in the header": "HTTP/1.1 200 OK\r\nX: ",
		"in the body": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\na"} {
		t.Run(name, func(t *testing.T) {
			s := script(t, func(s *scripted, conn *net.TCPConn, in *bufio.Reader) {
				s.request(in)
				say(conn, begin)
				<-hold
			})
			c := hasty(t, s.address, 20*time.Millisecond)
			r, err := c.Do(t.Context(), &Request{Method: "GET", Target: "/"})
			if err == nil {
				_, err = io.ReadAll(r)
			}
			reason(t, err, Stalled, "20ms")
		})
	}
	t.Run("and reads nothing", func(t *testing.T) {
		s := script(t, func(*scripted, *net.TCPConn, *bufio.Reader) { <-hold })
		_, err := hasty(t, s.address, 20*time.Millisecond).Do(t.Context(), &Request{Method: "PUT", Target: "/",
			Body: letters{}, Length: 64 << 20})
		reason(t, err, Stalled, "nothing")
	})
}

func TestAContextEndsARequest(t *testing.T) {
	hold := make(chan bool)
	defer close(hold)
	s := script(t, func(s *scripted, conn *net.TCPConn, in *bufio.Reader) {
		for s.request(in) != nil {
			if len(s.asked) == 2 {
				<-hold
			}
			say(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	c := open(t, s.address, patience)
	ctx, cancel := context.WithCancel(t.Context())
	q := &Request{Method: "GET", Target: "/"}
	_, err := c.Do(ctx, q)
	must.Succeed(t, err)
	go func() {
		for len(s.asked) < 2 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	_, err = c.Do(ctx, q)
	if reason(t, err, Ended, ""); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	_, err = c.Do(ctx, q)
	reason(t, err, Ended, "")
	get(t, c) // another context, on a new connection

	ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
	_, err = c.Do(ctx, q)
	must.Succeed(t, err)
	cancel() // between requests: the next has another context
	get(t, c)
}

func TestTheRestOfAnAnswerIsReadOrGivenUp(t *testing.T) {
	for name, test := range map[string]struct {
		size int
		kept bool
	}{"short": {1000, true}, "long": {2 * discardMax, false}} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write(bytes.Repeat([]byte{'x'}, test.size))
			}))
			defer server.Close()
			c := open(t, server.Listener.Addr().String(), patience)
			for range 3 {
				r, err := c.Do(t.Context(), &Request{Method: "GET", Target: "/"})
				must.Succeed(t, err)
				_, err = r.Read(make([]byte, 10))
				must.Succeed(t, err)
				if err := r.Close(); err != nil || (c.conn != nil) != test.kept {
					t.Errorf("%v, kept %v", err, c.conn != nil)
				}
			}
			_, err := c.Do(t.Context(), &Request{Method: "GET", Target: "/"})
			must.Succeed(t, err)
			get(t, c) // nobody closed the last one: a new connection
		})
	}
}

func TestHTTPS(t *testing.T) {
	asked := 0
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		n, _ := io.Copy(io.Discard, r.Body)
		if asked%3 == 0 {
			w.Header().Set("Connection", "close")
		}
		_, _ = w.Write(bytes.Repeat([]byte{'x'}, int(n)))
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	roots := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	host, _, _ := net.SplitHostPort(server.Listener.Addr().String())
	c := New(server.Listener.Addr().String(), Options{Timeout: patience,
		TLS: &tls.Config{RootCAs: roots, ServerName: host}})
	defer func() { _ = c.Close() }()
	for i := range 8 {
		const size = 300_000
		r, err := c.Do(t.Context(), &Request{Method: "PUT", Target: "/", Body: letters{}, Length: size})
		if err != nil {
			t.Fatal(i, err)
		}
		if n, err := io.Copy(io.Discard, r); n != size || err != nil {
			t.Fatal(i, n, err)
		}
		if i == 4 { // the server ends the connection while no request is in progress
			server.CloseClientConnections()
			must.Come(t, "the end arrives", func() bool { return c.conn == nil || !c.probe.quiet() })
		}
	}
	if asked != 8 {
		t.Errorf("%d requests", asked)
	}
	_, err := New(server.Listener.Addr().String(), Options{Timeout: patience, TLS: &tls.Config{ServerName: host}}).Do(
		t.Context(), &Request{Method: "GET", Target: "/"})
	reason(t, err, Unreached, "certificate")
}
