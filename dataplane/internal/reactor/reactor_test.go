package reactor

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"hotbed/dataplane/tests/must"
)

// looped runs a loop for a test.
func looped(t *testing.T) *Loop {
	t.Helper()
	l, err := New()
	must.Succeed(t, err)
	done := make(chan error, 1)
	t.Cleanup(func() {
		l.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		l.End()
	})
	go func() { done <- l.Run() }()
	return l
}

// within makes the loop's thread call f and waits for it.
func within(l *Loop, f func()) {
	done := make(chan struct{})
	l.Do(func() { f(); close(done) })
	<-done
}

// echo sends back the bytes it receives.
type echo struct{ conn *Conn }

func (e *echo) Ready(events uint32) {
	if events&Writable != 0 {
		e.conn.Flush()
	}
	if events&(Readable|Broken) == 0 {
		return
	}
	buffer := make([]byte, 100_000)
	n, err := e.conn.Read(buffer)
	if err != nil {
		e.conn.Close()
		return
	}
	e.conn.Queue(buffer[:n/2])
	e.conn.Send(buffer[n/2 : n])
}

func TestWhatCannotBeSentAtOnceIsSentLater(t *testing.T) {
	l := looped(t)
	var listener *Listener
	var err error
	within(l, func() {
		listener, err = Listen(l, netip.MustParseAddrPort("127.0.0.1:0"), func(fd int, from netip.AddrPort) {
			var err error
			e := &echo{}
			if e.conn, err = NewConn(l, fd, Readable, e); err != nil {
				t.Error(err)
			}
		})
	})
	must.Succeed(t, err)
	defer within(l, listener.Close)
	conn, err := net.Dial("tcp", listener.Address.String())
	must.Succeed(t, err)
	defer func() { _ = conn.Close() }()
	sent := make([]byte, 20<<20) // more than sockets hold, so it must be buffered
	for i := range sent {
		sent[i] = byte(i / 251)
	}
	_, err = conn.Write(sent)
	must.Succeed(t, err)
	got := make([]byte, len(sent))
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("what came back differs: %v", err)
	}
}

func TestTheAlarmRingsAtItsTimeAndOnlyThen(t *testing.T) {
	l := looped(t)
	rang := make(chan time.Duration, 10)
	var at time.Duration
	within(l, func() {
		l.Alarm = func() { rang <- l.Now() }
		l.WakeAt(l.Now() + time.Hour)
		l.WakeAt(Forever)
		at = l.Now() + 20*time.Millisecond
		l.WakeAt(at)
	})
	if when := <-rang; when < at {
		t.Errorf("it rang %v early", at-when)
	}
	within(l, func() { l.WakeAt(l.Now() - time.Second) }) // already past
	<-rang
	if len(rang) > 0 {
		t.Error("it rang again")
	}
}

func TestARefusedConnectionIsReported(t *testing.T) {
	l := looped(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	at := netip.MustParseAddrPort(closed.Addr().String())
	_ = closed.Close()
	reported := make(chan error, 1)
	within(l, func() {
		var c *Conn
		if c, err = Dial(l, at, handlerFunc(func(uint32) {
			reported <- c.Connected()
			c.Close()
		})); err != nil {
			reported <- err
		}
	})
	if err := <-reported; err == nil {
		t.Error("it is connected to nobody")
	}
}

func TestNothingIsCalledAfterTheEnd(t *testing.T) {
	l, err := New()
	must.Succeed(t, err)
	l.End()
	l.Do(func() {})
	if len(l.calls) != 0 {
		t.Error("a call waits for a thread that has ended, and the number of a closed file was written to")
	}
}
