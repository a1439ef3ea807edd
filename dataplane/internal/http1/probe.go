package http1

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// probe checks a socket without reading from it.
type probe struct {
	raw   syscall.RawConn
	peek  func(descriptor uintptr)
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
		_, _, p.errno = unix.Recvfrom(int(descriptor), p.b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	}
	return p
}

// quiet returns true if nothing has arrived: no bytes, no end and no error.
func (p *probe) quiet() bool {
	return p.raw.Control(p.peek) == nil && (p.errno == unix.EAGAIN || p.errno == unix.EINTR)
}
