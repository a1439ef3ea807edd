// Package store connects to the object stores of COSBench workloads: config strings, logins, and
// the storage types none, mock, swift and s3.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Storage is one worker's connection to an object store. It is not safe for concurrent use. Every
// error is, or wraps, an *Error.
type Storage interface {
	// CreateContainer makes a container. It succeeds if the container exists.
	CreateContainer(ctx context.Context, container string) error
	// DeleteContainer removes a container. It succeeds if the container is missing.
	DeleteContainer(ctx context.Context, container string) error
	// Put stores the body as an object, replacing an existing one. Length is in bytes; -1: chunked.
	// The body may be sent again; one with its bytes at hand is an io.WriterTo.
	Put(ctx context.Context, container, object string, body io.ReadSeeker, length int64) error
	// Get returns the body once the answer's first bytes have arrived. The caller reads to the end
	// and closes.
	Get(ctx context.Context, container, object string) (io.ReadCloser, error)
	// Delete removes an object. It succeeds if the object is missing, as in COSBench.
	Delete(ctx context.Context, container, object string) error
	// List reads the names in a container that begin with the prefix and returns the listing's
	// length in bytes. With an empty container it lists the account's containers.
	List(ctx context.Context, container, prefix string) (int64, error)
	// Close ends the connection.
	Close()
}

// Opener opens one worker's connection. It is called once per worker, one call at a time.
type Opener func(session Session) (Storage, error)

// Login gets a session.
type Login func(ctx context.Context) (Session, error)

// Kind is a storage or auth type: its config's keys, and how to open it. New reports mistakes of a
// config without network requests; credentials and addresses may come later.
type Kind[O Opener | Login] struct {
	Keys []string
	New  func(config Config) (O, error)
}

// Kinds are the storage and auth types that a workload may name.
type Kinds struct {
	Storage map[string]Kind[Opener]
	Auth    map[string]Kind[Login]
}

// All returns every type. A workload that names another type is refused.
func All() Kinds {
	return Kinds{
		Storage: map[string]Kind[Opener]{
			"none":  {Keys: []string{"logging"}, New: newNone},
			"mock":  {Keys: []string{"size", "delay", "errors", "printing", "doStats", "logging"}, New: newMock},
			"swift": {Keys: swiftKeys, New: newSwift},
			"s3":    {Keys: s3Keys, New: newS3},
		},
		Auth: map[string]Kind[Login]{
			"none":     {Keys: commonKeys, New: newNoAuth},
			"mock":     {Keys: slices.Concat([]string{"token", "delay"}, commonKeys), New: newMockAuth},
			"swauth":   {Keys: serviceKeys, New: newSwauth},
			"keystone": {Keys: keystoneKeys, New: newKeystone},
		},
	}
}

// Setting is one key=value of a config string.
type Setting struct{ Key, Value string }

// Config is a COSBench config string, "key=value;key=value", in its order; each key occurs once.
type Config []Setting

// ParseConfig reads a config string. A repeated key keeps its first place and takes its last value,
// as in COSBench. Spaces around keys and values are dropped.
func ParseConfig(text string) (Config, error) {
	var config Config
	for part := range strings.SplitSeq(text, ";") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		key, value, found := strings.Cut(part, "=")
		if key = strings.TrimSpace(key); !found || key == "" {
			// The part itself is not shown: it may be part of a password.
			return nil, errors.New("a part of the config is not key=value (parts are divided by ;)")
		}
		config = config.with(Setting{key, strings.TrimSpace(value)})
	}
	return config, nil
}

func (c Config) with(s Setting) Config {
	if at := slices.IndexFunc(c, func(have Setting) bool { return have.Key == s.Key }); at >= 0 {
		c[at].Value = s.Value
		return c
	}
	return append(c, s)
}

// With returns the config with a child's settings on top: the child's keys win.
func (c Config) With(child Config) Config {
	made := slices.Clone(c)
	for _, s := range child {
		made = made.with(s)
	}
	return made
}

var secretKeys = []string{"password", "secretkey", "token", "accesskey", "key", "secret", "usertoken"}

// String writes the config with *** for the values of passwords, keys and tokens.
func (c Config) String() string {
	parts := make([]string, len(c))
	for i, s := range c {
		if slices.Contains(secretKeys, strings.ToLower(s.Key)) {
			s.Value = "***"
		}
		parts[i] = s.Key + "=" + s.Value
	}
	return strings.Join(parts, ";")
}

// MarshalText masks secrets in JSON and XML, too.
func (c Config) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Lookup returns a key's value and true if the key is there.
func (c Config) Lookup(key string) (string, bool) {
	for _, s := range c {
		if s.Key == key {
			return s.Value, true
		}
	}
	return "", false
}

// Text returns a key's value, or a default.
func (c Config) Text(key, missing string) string {
	if value, found := c.Lookup(key); found {
		return value
	}
	return missing
}

// Required returns the value of a key that must be there and not be empty.
func (c Config) Required(key string) (string, error) {
	if value, _ := c.Lookup(key); value != "" {
		return value, nil
	}
	return "", fmt.Errorf("%s is missing in the config", key)
}

// Int returns a key's whole number, or a default.
func (c Config) Int(key string, missing int64) (int64, error) {
	text, found := c.Lookup(key)
	if !found {
		return missing, nil
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s=%s is not a whole number", key, text)
	}
	return value, nil
}

// Bool returns a key's true or false, or a default.
func (c Config) Bool(key string, missing bool) (bool, error) {
	text, found := c.Lookup(key)
	if !found {
		return missing, nil
	}
	switch strings.ToLower(text) {
	case "true", "yes", "on":
		return true, nil
	case "false", "no", "off":
		return false, nil
	}
	return false, fmt.Errorf("%s=%s is neither true nor false", key, text)
}

// Milliseconds returns a key's duration, written in milliseconds as COSBench does, or a default.
func (c Config) Milliseconds(key string, missing time.Duration) (time.Duration, error) {
	value, err := c.Int(key, missing.Milliseconds())
	const longest = int64(1) << 40
	if err == nil && (value < 0 || value > longest) {
		err = fmt.Errorf("%s=%d is not a number of milliseconds from 0", key, value)
	}
	return time.Duration(value) * time.Millisecond, err
}

// The kinds of failure. An operation's failures are counted by kind.
const (
	NotFound = "not-found" // no such container or object
	Auth     = "auth"      // access denied (401, 403); a session may be renewed
	Timeout  = "timeout"   // no answer in time
	Refused  = "refused"   // no listener, or the connection broke
	Server   = "server"    // the store failed (5xx), or its answer does not fit its protocol
	Other    = "client"    // the request was wrong (other 4xx), or this side failed
)

// FailureKinds are all kinds of failure, in the order in which they are shown.
func FailureKinds() []string { return []string{NotFound, Auth, Timeout, Refused, Server, Other} }

// Error is a failed request to a store or to its auth service.
type Error struct {
	Kind    string // one of FailureKinds
	Status  int    // the HTTP status; 0: there was no answer
	Message string // one sentence without secrets
}

func (e *Error) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("%s (%s, %d)", e.Message, e.Kind, e.Status)
	}
	return fmt.Sprintf("%s (%s)", e.Message, e.Kind)
}

// KindOf returns the kind of any error: an Error's own kind, else that of a network or context
// error, else Other.
func KindOf(err error) string {
	var known *Error
	if errors.As(err, &known) {
		return known.Kind
	}
	var network net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &network) && network.Timeout() {
		return Timeout
	}
	if errors.As(err, &network) {
		return Refused
	}
	return Other
}

// ended returns the error of a request with an ended context: Timeout if its time was over, else
// Other (cancelled). errors.Is still finds the context's error.
func ended(err error) error {
	kind, message := Other, "the request was called off"
	if errors.Is(err, context.DeadlineExceeded) {
		kind, message = Timeout, "the request's time was over"
	}
	return fmt.Errorf("%w: %w", &Error{Kind: kind, Message: message}, err)
}

// mock is COSBench's store without a server. It takes a set time for each operation and fails a set
// share of them; with neither it is storage type none.
type mock struct {
	size   int64
	delay  time.Duration
	errors float64
	random *rand.Rand
}

// mocks numbers the workers: each fails its own operations, the same ones in every run.
var mocks atomic.Uint64

func newNone(Config) (Opener, error) {
	return func(Session) (Storage, error) { return &mock{}, nil }, nil
}

// newMock reads size (bytes that a read returns), delay (milliseconds an operation takes) and errors
// (the share that fails, 0 to 1). COSBench's debugging aids are refused.
func newMock(config Config) (Opener, error) {
	var m mock
	var err error
	if m.size, err = config.Int("size", 1000); err != nil {
		return nil, err
	}
	if m.size < 0 {
		return nil, fmt.Errorf("size=%d is not a number of bytes from 0", m.size)
	}
	if m.delay, err = config.Milliseconds("delay", 10*time.Millisecond); err != nil {
		return nil, err
	}
	text := config.Text("errors", "0")
	if m.errors, err = strconv.ParseFloat(text, 64); err != nil || !(m.errors >= 0 && m.errors <= 1) {
		return nil, fmt.Errorf("errors=%s is not a share from 0 to 1", text)
	}
	for _, key := range []string{"printing", "doStats", "logging"} {
		if on, err := config.Bool(key, false); err != nil {
			return nil, err
		} else if on {
			return nil, fmt.Errorf("%s=true is not supported; leave it out", key)
		}
	}
	return func(Session) (Storage, error) {
		opened := m
		opened.random = rand.New(rand.NewPCG(mocks.Add(1), 0))
		return &opened, nil
	}, nil
}

// work decides if an operation fails, and then takes its time, as in COSBench.
func (m *mock) work(ctx context.Context) error {
	if m.errors > 0 && m.random.Float64() < m.errors {
		return &Error{Kind: Server, Message: "the mock store failed as its config says"}
	}
	return pause(ctx, m.delay)
}

func pause(ctx context.Context, delay time.Duration) error {
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return ended(err)
	}
	return nil
}

func (m *mock) CreateContainer(ctx context.Context, _ string) error { return m.work(ctx) }

func (m *mock) DeleteContainer(ctx context.Context, _ string) error { return m.work(ctx) }

func (m *mock) Delete(ctx context.Context, _, _ string) error { return m.work(ctx) }

func (m *mock) List(ctx context.Context, _, _ string) (int64, error) { return 0, m.work(ctx) }

func (m *mock) Close() {}

// Put reads the body to its end.
func (m *mock) Put(ctx context.Context, _, _ string, body io.ReadSeeker, length int64) error {
	n, err := io.Copy(io.Discard, body)
	if err != nil || length >= 0 && n != length {
		return &Error{Kind: Other, Message: fmt.Sprintf(
			"the body of an object ended after %d of %d bytes: %v", n, length, err)}
	}
	return m.work(ctx)
}

func (m *mock) Get(ctx context.Context, _, _ string) (io.ReadCloser, error) {
	if err := m.work(ctx); err != nil {
		return nil, err
	}
	return io.NopCloser(io.LimitReader(zeros{}, m.size)), nil
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
