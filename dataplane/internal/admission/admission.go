// Package admission keeps peers from exhausting a server's connections, descriptors, memory or log.
package admission

import (
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Descriptors returns the process's limit on open file descriptors.
func Descriptors() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // the usual limit
	}
	return int(min(limit.Cur, math.MaxInt32))
}

// Bytes counts the memory that many goroutines take from one budget.
type Bytes struct{ used atomic.Int64 }

// Take takes n bytes and returns true, unless more than `most` would then be taken.
func (b *Bytes) Take(n, most int64) bool {
	if b.used.Add(n) > most {
		b.used.Add(-n)
		return false
	}
	return true
}

// Add takes n bytes that can no longer be refused; a negative n gives bytes back.
func (b *Bytes) Add(n int64) { b.used.Add(n) }

// Used returns the number of bytes taken.
func (b *Bytes) Used() int64 { return b.used.Load() }

// Listener is a listener with a bounded number of open connections. It accepts a connection above
// the bound and closes the oldest connection of the address with the most connections.
type Listener struct {
	net.Listener
	most int
	mu   sync.Mutex
	open []*Conn // oldest first
}

// NewListener returns a listener that keeps at most `most` connections of inner open.
func NewListener(inner net.Listener, most int) *Listener {
	return &Listener{Listener: inner, most: most}
}

// Accept returns the next connection, a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: inner, of: l}
	if address, err := netip.ParseAddrPort(inner.RemoteAddr().String()); err == nil {
		c.from = address.Addr()
	}
	l.mu.Lock()
	l.open = append(l.open, c)
	var oldest *Conn
	if len(l.open) > l.most {
		oldest = l.crowding()
	}
	l.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
	return c, nil
}

// crowding returns the oldest connection of the address with the most connections.
func (l *Listener) crowding() *Conn {
	counts := map[netip.Addr]int{}
	most := 0
	for _, c := range l.open {
		counts[c.from]++
		most = max(most, counts[c.from])
	}
	return l.open[slices.IndexFunc(l.open, func(c *Conn) bool { return counts[c.from] == most })]
}

// Conn is a connection that counts against the bound until it is closed or released.
type Conn struct {
	net.Conn
	of   *Listener
	from netip.Addr
}

// Release stops counting the connection. It returns false if the connection was closed already.
func (c *Conn) Release() bool {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	at := slices.Index(c.of.open, c)
	if at >= 0 {
		c.of.open = slices.Delete(c.of.open, at, at+1)
	}
	return at >= 0
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.Release()
	return c.Conn.Close()
}

// Log is a log that peers cannot fill. It writes only the first lines of a time window and begins
// the next window with the number of lines left out. Each write is a line.
type Log struct {
	out    io.Writer
	mu     sync.Mutex
	began  time.Time
	lines  int
	window time.Duration
	most   int
}

// NewLog returns a log that writes at most 20 lines in 10 seconds.
func NewLog(out io.Writer) *Log { return &Log{out: out, window: 10 * time.Second, most: 20} }

// Write writes a line or leaves it out.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.began) >= l.window {
		if left := l.lines - l.most; left > 0 {
			_, _ = fmt.Fprintf(l.out, "%d more lines were left out\n", left)
		}
		l.began, l.lines = now, 0
	}
	if l.lines++; l.lines > l.most {
		return len(line), nil
	}
	return l.out.Write(line)
}
