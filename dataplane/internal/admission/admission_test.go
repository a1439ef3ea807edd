package admission

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"hotbed/dataplane/tests/must"
)

// dial connects from 127.0.0.<host>.
func dial(t *testing.T, to net.Addr, host byte) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, host)}}
	conn, err := dialer.Dial("tcp", to.String())
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestAnAddressWithManyConnectionsLosesItsOwn(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	l := NewListener(inner, 4)
	defer func() { _ = l.Close() }()
	accept := func(host byte) (net.Conn, *Conn) {
		client := dial(t, l.Addr(), host)
		conn, err := l.Accept()
		must.Succeed(t, err)
		return client, conn.(*Conn)
	}
	_, modest := accept(2)
	_, released := accept(3)
	if !released.Release() {
		t.Error("an open connection cannot be released")
	}
	var flood []*Conn
	for range 8 {
		_, conn := accept(3)
		flood = append(flood, conn)
	}
	for i, conn := range flood {
		if there := conn.Release(); there != (i >= 5) {
			t.Errorf("connection %d of the flood is open: %v", i, there)
		}
	}
	if _, err := flood[0].Read(make([]byte, 1)); err == nil {
		t.Error("the oldest of the flood is not closed")
	}
	if !modest.Release() {
		t.Error("another address lost its connection")
	}
	if _, err := released.Write([]byte("x")); err != nil {
		t.Errorf("a released connection was closed: %v", err)
	}
}

func TestABudgetIsNeverOverdrawn(t *testing.T) {
	var b Bytes
	if !b.Take(7, 10) || b.Take(4, 10) || b.Take(1, 7) || !b.Take(3, 10) {
		t.Error("it gives other than it has")
	}
	b.Add(-7)
	if b.Used() != 3 || !b.Take(7, 10) {
		t.Error("what came back is not there")
	}
}

func TestAFloodOfLinesIsCounted(t *testing.T) {
	var out bytes.Buffer
	l := NewLog(&out)
	l.window = time.Hour
	for i := range 1000 {
		if n, err := fmt.Fprintf(l, "line %d\n", i); n == 0 || err != nil {
			t.Fatal(n, err)
		}
	}
	if n := strings.Count(out.String(), "\n"); n != l.most {
		t.Errorf("%d lines were written", n)
	}
	l.window = 0
	_, _ = fmt.Fprintln(l, "late")
	if !strings.HasSuffix(out.String(), "980 more lines were left out\nlate\n") {
		t.Errorf("%q", out.String())
	}
}
