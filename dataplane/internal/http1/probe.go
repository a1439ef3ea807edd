package http1

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// sight is a connection's state, as seen without waiting.
type sight uint8

const (
	quiet    sight = iota // nothing has arrived
	readable              // bytes have arrived
	gone                  // its end, or an error
)

// probe checks a socket without reading from it.
type probe struct {
	raw   syscall.RawConn
	peek  func(descriptor uintptr)
	n     int
	errno error
	b     [1]byte
}

// newProbe returns nil if conn has no socket, as in a test.
func newProbe(conn net.Conn) *probe {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	p := &probe{raw: raw}
	p.peek = func(descriptor uintptr) {
		p.n, _, p.errno = unix.Recvfrom(int(descriptor), p.b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	}
	return p
}

func (p *probe) look() sight {
	if p.raw.Control(p.peek) != nil {
		return gone
	}
	switch {
	case p.errno == unix.EAGAIN || p.errno == unix.EINTR:
		return quiet
	case p.errno != nil || p.n == 0:
		return gone
	}
	return readable
}
