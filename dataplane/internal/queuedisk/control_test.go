package queuedisk

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hotbed/dataplane/internal/unixsocket"
	"hotbed/dataplane/tests/must"
)

func TestControlRequests(t *testing.T) {
	s := shaper(t, time.Millisecond)
	for _, c := range []struct{ line, want string }{ // want "" for ok
		{`{"op":"ping"}`, ""},
		{`{"op":"stats"}`, ""},
		{`{"op":"shape","on":false}`, ""},
		{`{"op":"shape","on":true}`, ""},
		{`{"op":"set","positioning_us":250.5,"bandwidth_bytes":80e6}`, ""},
		{`{"op":"set","bandwidth_bytes":70e6}`, ""},
		{`{"op":"fault","slow":2}`, ""},
		{`{"op":"fault","error":true}`, ""},
		{`{"op":"fault","slow":1,"error":false}`, ""},
		{`{"op":"reboot"}`, `unknown op "reboot"`},
		{`{"op":"shape"}`, `needs one of ["on"]`},
		{`{"op":"set"}`, "needs one of"},
		{`{"op":"ping","on":true}`, `takes no "on"`},
		{`{"op":"set","slow":2}`, `takes no "slow"`},
		{`{"op":"set","bandwidth_bytes":-1}`, "the bandwidth is -1"},
		{`{"op":"set","positioning_us":-1}`, "the mean positioning time is"},
		{`{"op":"set","positioning_us":1e300}`, "far too large"},
		{`{"op":"fault","slow":0.1}`, "allowed is 1 to"},
		{`{"op":"shape","on":"no"}`, "cannot be read"},
		{`{"op":"ping","x":1}`, "cannot be read"},
		{`nonsense`, "cannot be read"},
	} {
		got := handle(s, []byte(c.line))
		if got.OK != (c.want == "") || !strings.Contains(got.Error, c.want) {
			t.Errorf("%s: %+v, want %q", c.line, got, c.want)
		}
	}
	if got := s.Stats(); got.PositioningUs != 250.5 || got.BandwidthBps != 70e6 || got.Slow != 1 {
		t.Errorf("after setting: %+v", got)
	}
}

// failing is a listener that first fails for lack of file descriptors.
type failing struct {
	net.Listener
	times int
}

func (l *failing) Accept() (net.Conn, error) {
	if l.times--; l.times >= 0 {
		return nil, syscall.EMFILE
	}
	return l.Listener.Accept()
}

func TestControlSocket(t *testing.T) {
	s := shaper(t, time.Millisecond)
	path := filepath.Join(t.TempDir(), "control")
	listener, err := unixsocket.Listen(path, "a queue disk")
	must.Succeed(t, err)
	go serveControl(&failing{listener, 2}, s)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	var stats Stats
	if err := Ask(path, `{"op":"stats"}`, &stats); err != nil || stats.PositioningUs != 1000 {
		t.Errorf("stats over the socket: %+v, %v", stats, err)
	}
	must.Refuse(t, Ask(path, `{"op":"shape"}`, nil), "needs")
	_, err = unixsocket.Listen(path, "a queue disk")
	must.Refuse(t, err, "running")
	// Idle clients must not keep others from asking.
	for range 2 * mostAsking {
		silent, err := net.Dial("unix", path)
		must.Succeed(t, err)
		defer func() { _ = silent.Close() }()
		_, _ = silent.Write([]byte(`{"op":`))
		must.Succeed(t, Ask(path, `{"op":"ping"}`, nil))
	}
	_ = listener.Close()
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket file is left behind")
	}
}
