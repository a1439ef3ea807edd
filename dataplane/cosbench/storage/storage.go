// Package storage is the contract between the driver of COSBench workloads and the object stores
// that it drives; the stores are in its subpackages.
package storage

import (
	"context"
	"io"

	"hotbed/dataplane/cosbench/access"
	"hotbed/dataplane/cosbench/auth"
)

// Storage is one worker's connection to an object store; not safe for concurrent use, but workers
// may share a pool. Every error is, or wraps, an *Error.
type Storage interface {
	// CreateContainer makes a container; one that exists already is success.
	CreateContainer(ctx context.Context, container string) error
	// DeleteContainer removes a container; removing a missing one is success.
	DeleteContainer(ctx context.Context, container string) error
	// Put stores the body as an object, replacing one that is there. Length is in bytes; -1: chunked.
	// A body that can be sent again, after a connection turned out to be closed, is an io.Seeker; one
	// that has its bytes at hand is an io.WriterTo.
	Put(ctx context.Context, container, object string, body io.Reader, length int64) error
	// Get returns once the answer's first bytes are there: the body and its length in bytes (-1:
	// unknown). The caller reads to the end and closes.
	Get(ctx context.Context, container, object string) (io.ReadCloser, int64, error)
	// Delete removes an object; removing a missing one is success (as in COSBench).
	Delete(ctx context.Context, container, object string) error
	// List reads the names in a container that begin with the prefix and returns the listing's length
	// in bytes. With an empty container it lists the account's containers.
	List(ctx context.Context, container, prefix string) (int64, error)
	// Close ends the connection.
	Close() error
}

// Config is a storage element's config after inheritance.
type Config = access.Config

// Error is a failed request.
type Error = access.Error

// Factory opens one worker's connection. It is called once a worker, one call at a time.
type Factory func(config Config, session auth.Session) (Storage, error)

// Kind is one storage type: the keys that its config may have, what may stand there, and how to open it.
type Kind struct {
	Keys []string
	// Check says what is wrong with the values that the config has, before anything is opened or
	// known of the session; keys that are missing may come with it. Nil: nothing is checked.
	Check func(config Config) error
	Open  Factory
}

// Registry holds the storage types by the name that a workload's XML uses.
type Registry map[string]Kind
