package nfsproxy

import (
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"hotbed/dataplane/internal/nfs3"
	"hotbed/dataplane/internal/sunrpc"
	"hotbed/dataplane/tests/memnfs"
	"hotbed/dataplane/tests/must"
)

// works checks that the proxy serves a client.
func (r *rig) works(host int) {
	r.t.Helper()
	c, root := r.client(host)
	handle, err := c.Create(root, "works")
	if err == nil {
		err = c.Write(handle, 0, []byte("it does"))
	}
	if err == nil {
		var got []byte
		if got, err = c.Read(handle, 0, 100); string(got) != "it does" {
			r.t.Errorf("read %q", got)
		}
	}
	if err != nil {
		r.t.Error(err)
	}
	c.Close()
}

func TestAClientThatGoesMidRequest(t *testing.T) {
	open := make(chan struct{})
	r := newRig(t, &memnfs.Server{Hold: until(open)}, `{"policy": "pm", "depth": 2}`)
	handle := r.file("f", 4096)
	conn := r.raw(2)
	for i := range 10 {
		_, _ = conn.Write(readCall(uint32(i), handle, 0, 100))
	}
	r.eventually("eight wait", func(s Status) bool { return s.Queued == 8 && s.Outstanding == 2 })
	_ = conn.Close()
	// Calls at the server still occupy its depth; waiting calls are forgotten.
	r.eventually("none wait", func(s Status) bool { return s.Queued == 0 })
	if s := r.status(); s.Outstanding != 2 {
		t.Errorf("%d are outstanding, want the 2 that the server works on", s.Outstanding)
	}
	close(open)
	r.eventually("none is outstanding and the session is gone", func(s Status) bool {
		return s.Outstanding == 0 && s.Clients == 0
	})
	r.works(2)
}

func TestAClientThatSpeaksNoRPC(t *testing.T) {
	r := newRig(t, &memnfs.Server{}, `{"policy": "pm", "depth": 2}`)
	for _, garbage := range []string{"GET / HTTP/1.0\r\n\r\n", "\x80\x00\x00\x04abcd", "\xff\xff\xff\xff"} {
		conn := r.raw(2)
		_, _ = conn.Write([]byte(garbage))
		if !closed(conn) {
			t.Errorf("after %q the connection is open", garbage)
		}
	}
	if !strings.Contains(r.log.String(), "a record is longer than") {
		t.Errorf("the log is %q", r.log.String())
	}
	r.works(2)
}

func TestCallsWithRandomDamage(t *testing.T) {
	r := newRig(t, &memnfs.Server{}, `{"policy": "edf", "depth": 2}`,
		func(c *Config) { c.ReplyTimeout = 1e9 })
	handle := r.file("f", 4096)
	random := rand.New(rand.NewPCG(7, 7))
	for range 150 {
		var stream []byte
		for i := range 1 + random.IntN(4) {
			stream = append(stream, readCall(uint32(i), handle, 0, 100)...)
		}
		for range 1 + random.IntN(6) {
			stream[random.IntN(len(stream))] = byte(random.Uint32())
		}
		conn := r.raw(2 + random.IntN(3))
		_, _ = conn.Write(stream[:1+random.IntN(len(stream))])
		if random.IntN(2) == 0 {
			_ = conn.Close()
		} else {
			t.Cleanup(func() { _ = conn.Close() })
		}
	}
	r.works(2)
	r.eventually("nothing waits for what the server dropped", func(s Status) bool {
		return s.Queued == 0 && s.Outstanding == 0
	})
}

func TestTheServerRestarts(t *testing.T) {
	open := make(chan struct{})
	server := &memnfs.Server{Hold: until(open)}
	r := newRig(t, server, `{"policy": "pm", "depth": 2}`)
	handle := r.file("f", 4096)
	conn, other := r.raw(2), r.raw(3)
	for i := range 5 {
		_, _ = conn.Write(readCall(uint32(i), handle, 0, 100))
	}
	_, _ = other.Write(readCall(1, handle, 0, 100))
	r.eventually("some wait", func(s Status) bool { return s.Queued == 4 && s.Outstanding == 2 })
	address := server.Address()
	close(open)
	server.Close()
	// As without a proxy: connections end, and clients reconnect and resend unanswered calls.
	if !closed(conn) || !closed(other) {
		t.Error("a connection is open though the server is gone")
	}
	r.eventually("nothing is left", func(s Status) bool {
		return s.Queued == 0 && s.Outstanding == 0 && s.Clients == 0
	})
	if late := r.raw(2); !closed(late) {
		t.Error("a connection is open though there is no server")
	}
	r.server = &memnfs.Server{FS: server.FS}
	must.Succeed(t, r.server.Listen(address))
	again := r.raw(2)
	for i := range 5 {
		_, _ = again.Write(readCall(uint32(i), handle, 0, 100))
	}
	replies(t, again, 5)
	r.works(3)
}

// slow sends reads and takes no replies.
func slow(t *testing.T, conn net.Conn, handle []byte, count int) {
	t.Helper()
	sent := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < count && err == nil; i++ {
			_, err = conn.Write(readCall(uint32(i), handle, 0, 65536))
		}
		sent <- err
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-sent
	})
}

func TestASlowClientHoldsUpNobodyElse(t *testing.T) {
	r := newRig(t, &memnfs.Server{}, `{"policy": "none", "depth": 4}`,
		func(c *Config) { c.ClientMemory = "1MiB" })
	handle := r.file("f", 65536)
	conn := r.raw(2)
	const calls = 3000 // 190 MB of replies
	slow(t, conn, handle, calls)
	r.eventually("it is paused", func(Status) bool {
		paused := false
		r.proxy.do(func() {
			for s := range r.proxy.sessions {
				paused = paused || s.paused
			}
		})
		return paused
	})
	r.works(3)
	c, _ := r.client(3)
	for range 200 {
		_, err := c.Read(handle, 0, 65536)
		must.Succeed(t, err)
	}
	r.proxy.do(func() {
		for s := range r.proxy.sessions {
			// The bound, plus one call that was admitted below it.
			if used := s.reserved + s.client.Pending(); used > 1<<20+70_000 {
				t.Errorf("a client has %d bytes", used)
			}
		}
	})
	if s := r.status(); s.Outstanding != 0 {
		t.Errorf("%d calls are outstanding for a client that takes nothing", s.Outstanding)
	}
	// If the client takes the replies later, it gets all of them.
	if _, bytes := replies(t, conn, calls); bytes < calls*65536 {
		t.Errorf("%d bytes of replies", bytes)
	}
}

func TestAServerThatNeverAnswersKeepsNoPlaces(t *testing.T) {
	open := make(chan struct{})
	r := newRig(t, &memnfs.Server{Hold: until(open)}, `{"policy": "pm", "depth": 1}`,
		func(c *Config) { c.ReplyTimeout = 1e9 })
	handle := r.file("f", 4096)
	first, second := r.raw(2), r.raw(3)
	_, _ = first.Write(readCall(1, handle, 0, 100))
	r.eventually("one is outstanding", func(s Status) bool { return s.Outstanding == 1 })
	_, _ = second.Write(readCall(2, handle, 0, 100))
	r.eventually("both went to the server", func(s Status) bool { return s.TimedOut >= 1 && s.Queued == 0 })
	close(open)
	replies(t, second, 1)
	replies(t, first, 1) // late, but forwarded
	r.eventually("none is outstanding", func(s Status) bool { return s.Outstanding == 0 })
}

func TestCallsWithOneXID(t *testing.T) {
	r := newRig(t, &memnfs.Server{}, `{"policy": "pm", "depth": 1}`)
	handle := r.file("f", 4096)
	conn := r.raw(2)
	var stream []byte
	for range 5 {
		stream = append(stream, readCall(7, handle, 0, 100)...)
	}
	_, _ = conn.Write(stream)
	replies(t, conn, 5)
	r.eventually("nothing is left", func(s Status) bool { return s.Queued == 0 && s.Outstanding == 0 })
	if s := r.status(); s.Workloads[0].Requests != 5 {
		t.Errorf("%d requests were counted", s.Workloads[0].Requests)
	}
}

func TestUnknownClients(t *testing.T) {
	r := newRig(t, &memnfs.Server{}, `{"policy": "pm", "depth": 1}`)
	r.works(77)
	if s := r.status(); s.Workloads[2].Name != UnknownWorkload || s.Workloads[2].Requests == 0 {
		t.Errorf("%+v", s.Workloads)
	}
	stays := r.raw(78)
	r.eventually("it is there", func(s Status) bool { return s.Clients == 1 })
	r.put(parameters(`{"policy": "pm", "depth": 1, "unknown": "refuse"}`))
	if conn := r.raw(77); !closed(conn) {
		t.Error("an unknown client was let in")
	}
	if s := r.status(); s.Refused != 1 {
		t.Errorf("%d were refused", s.Refused)
	}
	handle := r.file("f", 4096)
	_, _ = stays.Write(readCall(1, handle, 0, 100))
	replies(t, stays, 1) // connections are not dropped
	r.works(2)
}

func TestAClientThatGoesWhileTheMountProtocolDoesNotAnswer(t *testing.T) {
	open := make(chan struct{})
	server := &memnfs.Server{Hold: func(c sunrpc.Call) <-chan struct{} {
		if c.Program == nfs3.MountProgram {
			return open
		}
		return nil
	}}
	r := newRig(t, server, `{"policy": "pm"}`, func(c *Config) { c.ReplyTimeout = 1e9 })
	conn, err := net.Dial("tcp", r.proxy.Addresses()[1].String())
	must.Succeed(t, err)
	call := sunrpc.AppendCall(nil, 1, nfs3.MountProgram, nfs3.MountVersion, nfs3.MountNull)
	sunrpc.SealRecord(call.Bytes, 0, 0)
	_, _ = conn.Write(call.Bytes)
	r.eventually("the call is at the server", func(Status) bool {
		var passed uint64
		r.proxy.do(func() { passed = r.proxy.counts.passed })
		return passed == 1
	})
	_ = conn.Close()
	// The server never answers: the session must still end.
	r.eventually("the session is gone", func(s Status) bool { return s.Clients == 0 })
	close(open)
}
