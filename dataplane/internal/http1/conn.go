package http1

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"time"
)

// Conn is a connection to one server. It is made on first use, and again after it broke or the
// server closed it. Only one goroutine may use it.
type Conn struct {
	address string
	options Options

	conn   net.Conn // nil: not connected
	probe  *probe   // nil: no socket
	wire   wire
	reader *bufio.Reader
	head   []byte // of a request, as it is sent

	ctx  context.Context // of the request in progress
	stop func() bool     // ends the watch over ctx

	sending  sending
	response Response
}

// readAhead is the number of header bytes read at once; most headers fit. Bodies bypass it.
const readAhead = 4096

// New returns a connection to host:port; nothing is sent yet.
func New(address string, options Options) *Conn {
	c := &Conn{address: address, options: options, ctx: context.Background()}
	c.wire.c = c
	c.reader = bufio.NewReaderSize(&c.wire, readAhead)
	c.response.c = c
	return c
}

// Address returns the server's address.
func (c *Conn) Address() string { return c.address }

// Close closes the connection; the next request makes a new one.
func (c *Conn) Close() error {
	c.response.state = done
	c.disconnect()
	return nil
}

// Do sends a request and reads the answer's header. The connection owns the Response, which is
// valid until the next request. The body must be read to its end or closed before then, or the
// connection is closed. An error is an *Error.
//
// A request is sent again only if none of it was sent, because the server had closed the connection
// since the last request.
func (c *Conn) Do(ctx context.Context, request *Request) (*Response, error) {
	if c.response.state != done {
		c.response.state = done
		c.disconnect()
	}
	if err := ctx.Err(); err != nil {
		return nil, &Error{Ended, err}
	}
	if c.conn != nil && (!c.watch(ctx) || !c.alive()) {
		c.disconnect()
	}
	again := c.conn != nil
	sending, err := c.prepare(request)
	if err != nil {
		return nil, err
	}
	defer sending.release()
	for {
		if c.conn == nil {
			if err := c.connect(ctx); err != nil {
				return nil, err
			}
		}
		err := c.send(sending)
		if err == nil {
			return &c.response, nil
		}
		c.disconnect()
		if !again || sending.sent > 0 || ctx.Err() != nil || !isBroken(err) {
			return nil, err
		}
		again = false
	}
}

func isBroken(err error) bool {
	e, ok := err.(*Error)
	return ok && e.Reason == Broken
}

func (c *Conn) connect(ctx context.Context) error {
	c.ctx = ctx
	limited := ctx
	if c.options.Timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, c.options.Timeout)
		defer cancel()
	}
	dial := c.options.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	conn, err := dial(limited, "tcp", c.address)
	socket := conn
	if err == nil && c.options.TLS != nil {
		secured := tls.Client(conn, c.options.TLS)
		if err = secured.HandshakeContext(limited); err != nil {
			_ = conn.Close()
		}
		conn = secured
	}
	if err != nil {
		if ended := ctx.Err(); ended != nil {
			return &Error{Ended, ended}
		}
		if limited.Err() != nil {
			err = fmt.Errorf("no connection within %v: %w", c.options.Timeout, os.ErrDeadlineExceeded)
		}
		return &Error{Unreached, err}
	}
	c.conn = conn
	c.probe = newProbe(socket)
	c.reader.Reset(&c.wire)
	c.ctx = context.Background()
	c.watch(ctx)
	return nil
}

// watch makes the end of ctx interrupt waits on the connection. A worker reuses its context, which
// costs only a comparison. It returns false if an earlier context's end has hit the connection.
func (c *Conn) watch(ctx context.Context) bool {
	if ctx == c.ctx {
		return true
	}
	if !c.unwatch() {
		return false
	}
	c.ctx = ctx
	if ctx.Done() != nil {
		conn := c.conn
		c.stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	}
	return true
}

func (c *Conn) unwatch() bool {
	stop := c.stop
	c.stop = nil
	return stop == nil || stop()
}

// alive returns true if the server has kept the connection since its last answer.
func (c *Conn) alive() bool {
	if c.reader.Buffered() > 0 {
		return false // an unexpected answer
	}
	if c.probe == nil {
		return true
	}
	return c.probe.quiet()
}

func (c *Conn) disconnect() {
	if c.conn == nil {
		return
	}
	c.unwatch()
	_ = c.conn.Close()
	c.conn, c.probe = nil, nil
}

// wire reads for the buffered reader; the server has Timeout for each step. The deadline is set
// before the context is checked, so that a context that ends in between is not missed.
type wire struct{ c *Conn }

func (w *wire) Read(b []byte) (int, error) {
	if err := w.c.armRead(); err != nil {
		return 0, err
	}
	return w.c.conn.Read(b)
}

func (c *Conn) armRead() error {
	if c.options.Timeout > 0 {
		if err := c.conn.SetReadDeadline(time.Now().Add(c.options.Timeout)); err != nil {
			return err
		}
	}
	return c.ctx.Err()
}

func (c *Conn) armWrite() error {
	if c.options.Timeout > 0 {
		if err := c.conn.SetWriteDeadline(time.Now().Add(c.options.Timeout)); err != nil {
			return err
		}
	}
	return c.ctx.Err()
}
