// Package nfsclient is a small NFS version 3 client, for the trace replayer (to find and fill its
// file) and for the proxy's tests. Concurrent calls are allowed.
package nfsclient

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"hotbed/dataplane/internal/nfs3"
	"hotbed/dataplane/internal/sunrpc"
)

// Timeout is how long a call waits for its reply.
const Timeout = 60 * time.Second

// maxReply is the longest accepted reply.
const maxReply = 4 << 20

// Client is a connection to a server.
type Client struct {
	conn  net.Conn
	xid   atomic.Uint32
	write sync.Mutex
	mutex sync.Mutex
	calls map[uint32]chan answer
	err   error // why the connection ended
}

type answer struct {
	results sunrpc.Decoder
	err     error
}

// StatusError is an NFS status other than OK.
type StatusError struct {
	What   string
	Status nfs3.Status
}

var statusNames = map[nfs3.Status]string{
	nfs3.ErrNoEntry:  "there is no such file",
	nfs3.ErrIO:       "input/output error",
	nfs3.ErrAccess:   "permission denied",
	nfs3.ErrExists:   "it is there already",
	nfs3.ErrNoSpace:  "the server has no space left",
	nfs3.ErrReadOnly: "the file system is read-only",
	nfs3.ErrStale:    "the file is gone",
}

func (e StatusError) Error() string {
	if name, known := statusNames[e.Status]; known {
		return fmt.Sprintf("%s: %s (NFS status %d)", e.What, name, e.Status)
	}
	return fmt.Sprintf("%s: NFS status %d", e.What, e.Status)
}

// Dial connects, from the local address if it is valid.
func Dial(to string, local netip.Addr) (*Client, error) {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	if local.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(local, 0))
	}
	conn, err := dialer.Dial("tcp", to)
	if err != nil {
		return nil, err
	}
	return New(conn), nil
}

// New returns a client on a connection.
func New(conn net.Conn) *Client {
	c := &Client{conn: conn, calls: map[uint32]chan answer{}}
	c.xid.Store(uint32(time.Now().UnixNano()))
	go c.receive()
	return c
}

// Close closes the connection; calls in progress fail.
func (c *Client) Close() { _ = c.conn.Close() }

func (c *Client) receive() {
	reader := sunrpc.Reader{Most: maxReply}
	var err error
	for err == nil {
		var n int
		if n, err = c.conn.Read(reader.Space()); err != nil {
			break
		}
		reader.Filled(n)
		for err == nil {
			var record []byte
			if _, record, err = reader.Next(); record == nil || err != nil {
				break
			}
			xid, results, wrong := sunrpc.ParseReply(append([]byte(nil), record...))
			c.mutex.Lock()
			to := c.calls[xid]
			delete(c.calls, xid)
			c.mutex.Unlock()
			if to != nil {
				to <- answer{results, wrong}
			}
		}
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the server closed the connection")
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.err = err
	for _, to := range c.calls {
		to <- answer{err: err}
	}
	c.calls = nil
	_ = c.conn.Close()
}

// Call sends a call and waits for its results.
func (c *Client) Call(program, version, procedure uint32, arguments func(*sunrpc.Encoder)) (sunrpc.Decoder, error) {
	xid := c.xid.Add(1)
	e := sunrpc.AppendCall(nil, xid, program, version, procedure)
	if arguments != nil {
		arguments(&e)
	}
	sunrpc.SealRecord(e.Bytes, 0, 0)
	to := make(chan answer, 1)
	c.mutex.Lock()
	if c.calls == nil {
		c.mutex.Unlock()
		return sunrpc.Decoder{}, c.err
	}
	c.calls[xid] = to
	c.mutex.Unlock()
	c.write.Lock()
	_, err := c.conn.Write(e.Bytes)
	c.write.Unlock()
	if err != nil {
		return sunrpc.Decoder{}, err
	}
	timer := time.NewTimer(Timeout)
	defer timer.Stop()
	select {
	case a := <-to:
		return a.results, a.err
	case <-timer.C:
		return sunrpc.Decoder{}, fmt.Errorf("the server did not answer for %v", Timeout)
	}
}

// nfs sends an NFS call and removes the status from its results.
func (c *Client) nfs(what string, procedure uint32, arguments func(*sunrpc.Encoder)) (sunrpc.Decoder, error) {
	d, err := c.Call(nfs3.Program, nfs3.Version, procedure, arguments)
	if err != nil {
		return d, fmt.Errorf("%s: %w", what, err)
	}
	if status := nfs3.Status(d.Uint32()); status != nfs3.OK || !d.OK() {
		return d, StatusError{what, status}
	}
	return d, nil
}

// Mount returns the handle of an export's root, by the mount protocol.
func (c *Client) Mount(export string) ([]byte, error) {
	d, err := c.Call(nfs3.MountProgram, nfs3.MountVersion, nfs3.MountMnt,
		func(e *sunrpc.Encoder) { e.String(export) })
	if err != nil {
		return nil, fmt.Errorf("mount of %s: %w", export, err)
	}
	if status := nfs3.Status(d.Uint32()); status != nfs3.OK {
		return nil, StatusError{"mount of " + export, status}
	}
	handle := d.Opaque(nfs3.MaxHandle)
	if !d.OK() {
		return nil, fmt.Errorf("mount of %s: the answer is cut off", export)
	}
	return handle, nil
}

// skipAttributes reads a post_op_attr and returns its size, or -1.
func skipAttributes(d *sunrpc.Decoder) int64 {
	if d.Uint32() == 0 {
		return -1
	}
	d.Fixed(20)
	size := int64(d.Uint64())
	d.Fixed(56)
	return size
}

// Lookup returns the handle and size of a file in a folder.
func (c *Client) Lookup(folder []byte, name string) (handle []byte, size int64, err error) {
	d, err := c.nfs("lookup of "+name, nfs3.ProcLookup, func(e *sunrpc.Encoder) {
		e.Opaque(folder)
		e.String(name)
	})
	if err != nil {
		return nil, 0, err
	}
	handle = d.Opaque(nfs3.MaxHandle)
	size = skipAttributes(&d)
	if !d.OK() {
		return nil, 0, fmt.Errorf("lookup of %s: the answer is cut off", name)
	}
	if size < 0 {
		size, err = c.Size(handle)
	}
	return handle, size, err
}

// Size returns the size of a file.
func (c *Client) Size(handle []byte) (int64, error) {
	d, err := c.nfs("attributes", nfs3.ProcGetattr, func(e *sunrpc.Encoder) { e.Opaque(handle) })
	if err != nil {
		return 0, err
	}
	d.Fixed(20)
	return int64(d.Uint64()), nil
}

// attributes appends an sattr3 that sets the mode, and the size unless it is negative.
func attributes(e *sunrpc.Encoder, mode uint32, size int64) {
	e.Bool(mode != 0)
	if mode != 0 {
		e.Uint32(mode)
	}
	e.Uint32(0)
	e.Uint32(0)
	e.Bool(size >= 0)
	if size >= 0 {
		e.Uint64(uint64(size))
	}
	e.Uint32(0)
	e.Uint32(0)
}

// Create creates or finds a file and returns its handle.
func (c *Client) Create(folder []byte, name string) ([]byte, error) {
	d, err := c.nfs("creation of "+name, nfs3.ProcCreate, func(e *sunrpc.Encoder) {
		e.Opaque(folder)
		e.String(name)
		e.Uint32(0) // unchecked
		attributes(e, 0o644, -1)
	})
	if err != nil {
		return nil, err
	}
	if d.Uint32() == 1 {
		if handle := d.Opaque(nfs3.MaxHandle); d.OK() {
			return handle, nil
		}
	}
	handle, _, err := c.Lookup(folder, name)
	return handle, err
}

// Truncate sets a file's size.
func (c *Client) Truncate(handle []byte, size int64) error {
	_, err := c.nfs("truncation", nfs3.ProcSetattr, func(e *sunrpc.Encoder) {
		e.Opaque(handle)
		attributes(e, 0, size)
		e.Bool(false)
	})
	return err
}

// Read reads up to count bytes, fewer at the end of the file.
func (c *Client) Read(handle []byte, offset int64, count int) ([]byte, error) {
	d, err := c.nfs("read", nfs3.ProcRead, func(e *sunrpc.Encoder) {
		e.Opaque(handle)
		e.Uint64(uint64(offset))
		e.Uint32(uint32(count))
	})
	if err != nil {
		return nil, err
	}
	skipAttributes(&d)
	d.Uint32()
	d.Uint32()
	data := d.Opaque(count)
	if !d.OK() {
		return nil, errors.New("read: the answer is cut off or too long")
	}
	return data, nil
}

// Write writes to stable storage.
func (c *Client) Write(handle []byte, offset int64, data []byte) error {
	d, err := c.nfs("write", nfs3.ProcWrite, func(e *sunrpc.Encoder) {
		e.Opaque(handle)
		e.Uint64(uint64(offset))
		e.Uint32(uint32(len(data)))
		e.Uint32(nfs3.FileSync)
		e.Opaque(data)
	})
	if err != nil {
		return err
	}
	if d.Uint32() == 1 { // attributes before
		d.Fixed(24)
	}
	skipAttributes(&d)
	if n := d.Uint32(); !d.OK() || int(n) != len(data) {
		return fmt.Errorf("write: %d of %d bytes were written", n, len(data))
	}
	return nil
}

// Rename moves a file to another folder and name.
func (c *Client) Rename(from []byte, oldName string, to []byte, newName string) error {
	_, err := c.nfs("renaming "+oldName, nfs3.ProcRename, func(e *sunrpc.Encoder) {
		e.Opaque(from)
		e.String(oldName)
		e.Opaque(to)
		e.String(newName)
	})
	return err
}

// Remove removes a file from a folder.
func (c *Client) Remove(folder []byte, name string) error {
	_, err := c.nfs("removal of "+name, nfs3.ProcRemove, func(e *sunrpc.Encoder) {
		e.Opaque(folder)
		e.String(name)
	})
	return err
}
