package http1

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// Conn is a connection to one server. It is made when it is first needed, and again after it broke or
// the server closed it. One goroutine uses it.
type Conn struct {
	address string
	options Options

	conn   net.Conn // nil: there is none
	probe  *probe   // nil: no socket
	wire   wire
	reader *bufio.Reader
	head   []byte // of a request, as it is sent

	patience time.Duration   // for each read
	ctx      context.Context // of the request on its way
	stop     func() bool     // ends the watch over ctx

	sending  sending
	partial  bool // an answer that comes now ends the connection: the request was not sent whole
	response Response
}

// readAhead is how much is read at once of an answer's header: most fit. Bodies are read past it.
const readAhead = 4096

// New makes a connection to host:port; nothing is sent yet.
func New(address string, options Options) *Conn {
	c := &Conn{address: address, options: options, patience: options.Timeout, ctx: context.Background()}
	c.wire.c = c
	c.reader = bufio.NewReaderSize(&c.wire, readAhead)
	c.response.c = c
	return c
}

// Address is where it goes to.
func (c *Conn) Address() string { return c.address }

// Close ends the connection; another request makes a new one.
func (c *Conn) Close() error {
	c.response.state = done
	c.disconnect()
	return nil
}

// Do sends a request and reads the answer's header. The Response is the connection's own: it is good
// until the next request, before which its body is to be read to its end or closed, or the connection
// is given up. An error is an *Error.
//
// A request is sent again only if nothing of it was sent: where the server had closed the connection
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

// watch has the end of a context end what waits on the connection. A worker asks with the same context
// again and again: that costs a comparison. False: an earlier context's end has hit the connection.
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

// alive says whether the server has kept the connection since its last answer.
func (c *Conn) alive() bool {
	if c.reader.Buffered() > 0 {
		return false // an answer that nobody asked for
	}
	if c.probe == nil {
		return true
	}
	switch c.probe.look() {
	case quiet:
		return true
	case readable:
		return c.options.TLS != nil && c.secret()
	}
	return false
}

// secret says whether what has come by TLS is nothing of the stream's: a ticket, and not its end.
func (c *Conn) secret() bool {
	patience := c.patience
	c.patience = time.Millisecond
	_, err := c.reader.Peek(1)
	c.patience = patience
	return errors.Is(err, os.ErrDeadlineExceeded)
}

func (c *Conn) disconnect() {
	if c.conn == nil {
		return
	}
	c.unwatch()
	_ = c.conn.Close()
	c.conn, c.probe = nil, nil
}

// wire reads, for the buffered reader: the other side has Timeout for each step. The deadline is set
// before the context is looked at, so that a context that ends in between is not lost.
type wire struct{ c *Conn }

func (w *wire) Read(b []byte) (int, error) {
	if err := w.c.armRead(); err != nil {
		return 0, err
	}
	return w.c.conn.Read(b)
}

func (c *Conn) armRead() error {
	if c.patience > 0 {
		if err := c.conn.SetReadDeadline(time.Now().Add(c.patience)); err != nil {
			return err
		}
	}
	return c.ctx.Err()
}

func (c *Conn) armWrite(patience time.Duration) error {
	if patience > 0 {
		if err := c.conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
	}
	return c.ctx.Err()
}
