package reactor

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Conn is a TCP connection of a loop. It buffers bytes that cannot be sent at once and sends them
// later; its owner bounds the buffer.
type Conn struct {
	loop   *Loop
	fd     int
	out    []byte // to be sent, from sent on
	sent   int
	taken  uint64 // bytes that the socket took
	events uint32 // the events waited for
	failed error
	closed bool
}

// direct is the size from which a message is not copied in front of others.
const direct = 16 << 10

// atOnce is the most that is sent in one turn. Sending a megabyte takes the kernel milliseconds,
// during which a single-threaded loop serves nothing else, including its alarm. On a loopback 128
// KiB took 15 us of the thread (99th percentile 60), 256 KiB 30 and 1 MiB 135. So 128 KiB takes no
// longer than other steps of a turn, and a megabyte takes eight turns. Not compared with other
// sizes on a testbed.
const atOnce = 128 << 10

// A connection with nothing to send has no buffer: it leaves its buffer to the loop's next
// connection that needs one. The loop keeps mostSpare buffers of at most mostIdle bytes, so that a
// 1 MiB message (the most that NFS clients ask for) does not grow a new buffer each time. mostIdle
// is twice that, because append can double a buffer and a message has a header.
const (
	mostIdle  = 2 << 20
	mostSpare = 8
)

// NewConn takes over a connected or connecting socket; the loop calls h on the given events.
func NewConn(l *Loop, fd int, events uint32, h Handler) (*Conn, error) {
	err := errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		// A silently lost peer is noticed after a minute or two.
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 60),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 15),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 4))
	if err != nil {
		return nil, os.NewSyscallError("setsockopt", err)
	}
	c := &Conn{loop: l, fd: fd, events: events}
	return c, l.Add(fd, events, h)
}

// Dial begins to connect. When the connection becomes writable, it is established or has failed (see
// Connected).
func Dial(l *Loop, to netip.AddrPort, h Handler) (*Conn, error) {
	family := unix.AF_INET
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(fd, sockaddr(to)); err != nil && err != unix.EINPROGRESS {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("connect", err)
	}
	c, err := NewConn(l, fd, Writable, h)
	if err != nil {
		_ = unix.Close(fd)
	}
	return c, err
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// Connected returns nil if a dialled, now writable connection is established, else the error.
func (c *Conn) Connected() error {
	code, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	return err
}

// Wait enables or disables waiting for readable bytes. The Conn itself manages waiting to write.
func (c *Conn) Wait(readable bool) {
	events := c.events &^ Readable
	if readable {
		events |= Readable
	}
	c.wait(events)
}

func (c *Conn) wait(events uint32) {
	if events != c.events && !c.closed {
		c.events = events
		_ = c.loop.Wait(c.fd, events)
	}
}

// Read reads available bytes: 0 if there are none, io.EOF at the end.
func (c *Conn) Read(into []byte) (int, error) {
	if c.closed {
		return 0, io.EOF
	}
	for {
		n, err := unix.Read(c.fd, into)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return 0, nil
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// Queue copies bytes for the next Flush, but sends large ones at once.
func (c *Conn) Queue(bytes []byte) {
	if len(bytes) >= direct {
		c.Send(bytes)
		return
	}
	c.keep(bytes)
}

// Keep copies bytes, of any size, for the next Flush.
func (c *Conn) Keep(bytes []byte) {
	if c.failed == nil && !c.closed {
		c.keep(bytes)
	}
}

func (c *Conn) keep(bytes []byte) {
	if n := len(c.loop.spare); c.out == nil && n > 0 {
		c.out, c.loop.spare = c.loop.spare[n-1], c.loop.spare[:n-1]
	}
	c.out = append(c.out, bytes...)
}

// Send sends bytes now, after queued bytes, and keeps a copy of what cannot be sent.
func (c *Conn) Send(bytes []byte) {
	if c.Pending() > 0 {
		c.Flush()
	}
	if c.Pending() == 0 && c.failed == nil {
		n := c.write(bytes)
		bytes = bytes[n:]
	}
	if c.failed == nil && len(bytes) > 0 {
		c.keep(bytes)
		c.wait(c.events | Writable)
	}
}

// Flush sends queued bytes, as far as possible without waiting and in one turn. The owner also
// calls it when the connection becomes writable.
func (c *Conn) Flush() {
	if c.closed || c.failed != nil {
		return
	}
	if c.Pending() > 0 {
		c.sent += c.write(c.out[c.sent:])
	}
	switch {
	case c.Pending() == 0:
		c.drop()
		c.wait(c.events &^ Writable)
	case c.sent > len(c.out)/2:
		c.out, c.sent = c.out[:copy(c.out, c.out[c.sent:])], 0
		fallthrough
	default:
		c.wait(c.events | Writable)
	}
}

// write sends as many of the first bytes as the socket takes.
func (c *Conn) write(bytes []byte) (sent int) {
	bytes = bytes[:min(len(bytes), atOnce)]
	for sent < len(bytes) && !c.closed {
		n, err := unix.Write(c.fd, bytes[sent:])
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return sent
		case err != nil:
			c.failed = os.NewSyscallError("write", err)
			return sent
		default:
			sent += n
			c.taken += uint64(n)
		}
	}
	return sent
}

// drop discards the queued data.
func (c *Conn) drop() {
	if cap(c.out) > 0 && cap(c.out) <= mostIdle && len(c.loop.spare) < mostSpare {
		c.loop.spare = append(c.loop.spare, c.out[:0])
	}
	c.out, c.sent = nil, 0
}

// Pending returns the number of bytes that wait to be sent.
func (c *Conn) Pending() int { return len(c.out) - c.sent }

// Taken returns the total number of bytes that the socket has taken.
func (c *Conn) Taken() uint64 { return c.taken }

// Failed returns the error after which nothing can be sent.
func (c *Conn) Failed() error { return c.failed }

// Close closes the connection at once; unsent bytes are lost.
func (c *Conn) Close() {
	if !c.closed {
		c.closed = true
		c.drop()
		c.loop.Close(c.fd)
	}
}

// Listener accepts connections and passes them to Accept.
type Listener struct {
	loop   *Loop
	fd     int
	paused bool
	Accept func(fd int, from netip.AddrPort)
	// Address is the listening address, with the actual port if port 0 was requested.
	Address netip.AddrPort
}

// Listen opens a listening socket; the error is one sentence.
func Listen(l *Loop, at netip.AddrPort, accept func(fd int, from netip.AddrPort)) (*Listener, error) {
	family := unix.AF_INET
	if at.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(fd, sockaddr(at)))
	if err == nil {
		err = unix.Listen(fd, 1024)
	}
	listener := &Listener{loop: l, fd: fd, Accept: accept}
	if err == nil {
		var bound unix.Sockaddr
		if bound, err = unix.Getsockname(fd); err == nil {
			listener.Address = address(bound)
			err = l.Add(fd, Readable, listener)
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("cannot listen at %s: %w", at, err)
	}
	return listener, nil
}

func address(s unix.Sockaddr) netip.AddrPort {
	switch s := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(s.Addr), uint16(s.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(s.Addr).Unmap(), uint16(s.Port))
	}
	return netip.AddrPort{}
}

// acceptedAtOnce is the maximum of connections accepted in one turn.
const acceptedAtOnce = 16

// Ready accepts waiting connections. If no file descriptors are left, it pauses until Resume.
func (s *Listener) Ready(uint32) {
	for range acceptedAtOnce {
		fd, from, err := unix.Accept4(s.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
			s.Accept(fd, address(from))
		case unix.EINTR, unix.ECONNABORTED:
		case unix.EAGAIN:
			return
		default:
			s.paused = true
			_ = s.loop.Wait(s.fd, 0)
			return
		}
	}
}

// Resume ends a pause; call it periodically.
func (s *Listener) Resume() {
	if s.paused {
		s.paused = false
		_ = s.loop.Wait(s.fd, Readable)
	}
}

// Close stops listening.
func (s *Listener) Close() { s.loop.Close(s.fd) }
