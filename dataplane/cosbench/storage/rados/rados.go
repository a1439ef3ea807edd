// Package rados drives Ceph's RADOS through librados, as COSBench's storage type librados does: a
// container is a pool.
package rados

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"syscall"
	"time"

	"hotbed/dataplane/cosbench/access"
	"hotbed/dataplane/cosbench/auth"
	"hotbed/dataplane/cosbench/storage"
	"hotbed/dataplane/internal/librados"
)

// Keys are COSBench's endpoint (the monitors' addresses), accesskey (the cephx user) and secretkey (its
// key); of our own are conf and keyring (files that say the same, so that the workload holds no key) and
// timeout (milliseconds that connecting or an operation may take; librados counts in seconds).
var Keys = []string{"endpoint", "accesskey", "secretkey", "conf", "keyring", "timeout", "logging"}

const (
	defaultEndpoint = "127.0.0.1"
	defaultTimeout  = 30 * time.Second
	// pieceSize is how much of an object is read at once, in bytes.
	pieceSize = 4 << 20
)

// cluster is what is used of a cluster's connection.
type cluster interface {
	CreatePool(name string) error
	DeletePool(name string) error
	Open(name string) (pool, error)
	Close()
}

// pool is what is used of a pool, as librados.Pool has it.
type pool interface {
	WriteFull(name string, parts ...[]byte) error
	Read(name string, b []byte, offset uint64) (int, error)
	Size(name string) (uint64, error)
	Remove(name string) error
	List() ([]string, error)
	Close() error
}

type connected struct{ *librados.Cluster }

func (c connected) Open(name string) (pool, error) { return c.Pool(name) }

// shared are the connections that workers share: one for each cluster and user, as in COSBench.
var shared = struct {
	sync.Mutex
	byConfig map[librados.Config]*connection
}{byConfig: map[librados.Config]*connection{}}

type connection struct {
	cluster
	users  int
	config librados.Config
}

// Check says what of a config is wrong before anybody is connected to.
func Check(config storage.Config) error {
	_, err := timeoutOf(config)
	return err
}

func timeoutOf(config storage.Config) (time.Duration, error) {
	if _, err := config.Bool("logging", false); err != nil {
		return 0, err
	}
	return config.Milliseconds("timeout", defaultTimeout)
}

// Open makes a worker's connection, or joins the others'.
func Open(config storage.Config, _ auth.Session) (storage.Storage, error) {
	timeout, err := timeoutOf(config)
	if err != nil {
		return nil, err
	}
	c := librados.Config{Conf: config.String("conf", ""), Keyring: config.String("keyring", ""),
		Monitors: config.String("endpoint", ""), Key: config.String("secretkey", ""), User: config.String("accesskey", ""),
		Patience: timeout}
	if timeout > 0 {
		c.OSDPatience = max(timeout, time.Second)
	}
	if c.User == "" {
		return nil, fmt.Errorf("storage type librados: accesskey is missing in the config (the cephx user, such as admin)")
	}
	if c.Conf == "" && c.Monitors == "" {
		c.Monitors = defaultEndpoint
	}
	shared.Lock()
	defer shared.Unlock()
	joined := shared.byConfig[c]
	if joined == nil {
		made, err := librados.Connect(c)
		if err != nil {
			return nil, failure("connect", err)
		}
		joined = &connection{cluster: connected{made}, config: c}
		shared.byConfig[c] = joined
	}
	joined.users++
	return &store{cluster: joined.cluster, leave: joined.leave, pools: map[string]pool{}}, nil
}

func (c *connection) leave() {
	shared.Lock()
	defer shared.Unlock()
	if c.users--; c.users == 0 {
		delete(shared.byConfig, c.config)
		c.Close()
	}
}

// store is one worker's. Librados cannot be called off: a context that ends is looked at between
// operations, and the time-out ends an operation.
type store struct {
	cluster cluster
	leave   func()
	pools   map[string]pool
	buffer  []byte
	object  object
}

func (s *store) pool(ctx context.Context, name string) (pool, error) {
	if err := ctx.Err(); err != nil {
		return nil, access.Ended(err)
	}
	if p := s.pools[name]; p != nil {
		return p, nil
	}
	p, err := s.cluster.Open(name)
	if err != nil {
		return nil, failure("open", err)
	}
	s.pools[name] = p
	return p, nil
}

// CreateContainer makes a pool, with the cluster's defaults.
func (s *store) CreateContainer(ctx context.Context, container string) error {
	if err := ctx.Err(); err != nil {
		return access.Ended(err)
	}
	if err := s.cluster.CreatePool(container); err != nil && !errors.Is(err, syscall.EEXIST) {
		return failure("create", err)
	}
	return nil
}

// DeleteContainer removes a pool with all in it, as COSBench does.
func (s *store) DeleteContainer(ctx context.Context, container string) error {
	if err := ctx.Err(); err != nil {
		return access.Ended(err)
	}
	if p := s.pools[container]; p != nil {
		delete(s.pools, container)
		_ = p.Close()
	}
	if err := s.cluster.DeletePool(container); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failure("delete", err)
	}
	return nil
}

// Put writes an object in one operation, replacing one that is there.
func (s *store) Put(ctx context.Context, container, name string, body io.Reader, length int64) error {
	p, err := s.pool(ctx, container)
	if err != nil {
		return err
	}
	if s.buffer, err = readAll(s.buffer[:0], body, length); err != nil {
		return &access.Error{Kind: access.Client, Message: fmt.Sprintf("PUT %s/%s: the body cannot be read: %v", container,
			name, err)}
	}
	return failure("PUT", p.WriteFull(name, s.buffer))
}

// readAll reads a body of that length, or with -1 to its end.
func readAll(b []byte, body io.Reader, length int64) ([]byte, error) {
	if length >= 0 {
		if int64(cap(b)) < length {
			b = make([]byte, 0, length)
		}
		n, err := io.ReadFull(body, b[:length])
		return b[:n], err
	}
	for {
		if len(b) == cap(b) {
			b = append(b, make([]byte, max(pieceSize, len(b)))...)[:len(b)]
		}
		n, err := body.Read(b[len(b):cap(b)])
		if b = b[:len(b)+n]; err == io.EOF {
			return b, nil
		} else if err != nil {
			return b, err
		}
	}
}

// Get asks for the size as COSBench does, and then reads piece by piece.
func (s *store) Get(ctx context.Context, container, name string) (io.ReadCloser, int64, error) {
	p, err := s.pool(ctx, container)
	if err != nil {
		return nil, 0, err
	}
	size, err := p.Size(name)
	if err != nil {
		return nil, 0, failure("GET", err)
	}
	s.object = object{ctx: ctx, pool: p, name: name, size: size}
	return &s.object, int64(size), nil
}

func (s *store) Delete(ctx context.Context, container, name string) error {
	p, err := s.pool(ctx, container)
	if err != nil {
		return err
	}
	if err := p.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failure("DELETE", err)
	}
	return nil
}

// List reads all names of a pool; RADOS knows no prefixes.
func (s *store) List(ctx context.Context, container, prefix string) (int64, error) {
	p, err := s.pool(ctx, container)
	if err != nil {
		return 0, err
	}
	names, err := p.List()
	if err != nil {
		return 0, failure("LIST", err)
	}
	n := int64(0)
	for _, name := range names {
		if len(name) >= len(prefix) && name[:len(prefix)] == prefix {
			n += int64(len(name)) + 1
		}
	}
	return n, nil
}

func (s *store) Close() error {
	for _, p := range s.pools {
		_ = p.Close()
	}
	s.pools = nil
	if s.leave != nil {
		s.leave()
		s.leave = nil
	}
	return nil
}

// object is one that is read.
type object struct {
	ctx      context.Context
	pool     pool
	name     string
	size, at uint64
}

func (o *object) Read(b []byte) (int, error) {
	if o.at == o.size {
		return 0, io.EOF
	}
	if err := o.ctx.Err(); err != nil {
		return 0, access.Ended(err)
	}
	b = b[:min(uint64(len(b)), pieceSize, o.size-o.at)]
	n, err := o.pool.Read(o.name, b, o.at)
	if err != nil {
		return 0, failure("GET", err)
	}
	if n == 0 && len(b) > 0 {
		return 0, &access.Error{Kind: access.Server, Message: fmt.Sprintf("GET %s: it has become shorter than %d bytes",
			o.name, o.size)}
	}
	o.at += uint64(n)
	return n, nil
}

func (o *object) Close() error { return nil }

// failure names the kind of what librados answered.
func failure(verb string, err error) error {
	if err == nil {
		return nil
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return &access.Error{Kind: access.Client, Message: err.Error()}
	}
	kind := access.Server
	switch errno {
	case syscall.ENOENT:
		kind = access.NotFound
	case syscall.EPERM, syscall.EACCES:
		kind = access.Auth
	case syscall.ETIMEDOUT:
		kind = access.Timeout
	case syscall.ENOTCONN, syscall.ESHUTDOWN, syscall.ECONNREFUSED, syscall.ECONNRESET:
		kind = access.Refused
	case syscall.EINVAL, syscall.EFBIG, syscall.ENAMETOOLONG, syscall.E2BIG:
		kind = access.Client
	}
	return &access.Error{Kind: kind, Status: int(errno), Message: verb + ": " + err.Error()}
}
