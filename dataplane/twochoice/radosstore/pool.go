// Package radosstore keeps an object server's data in a RADOS pool: fragments of the two-choice
// protocol, the base of the objects that are at home there, and the redirect log. The pool is on
// one OSD, which this agent serves: it replaces the disk of the paper's object server (section VI).
//
// RADOS operations on one object are atomic, and durable when they answer. So a fragment is one
// operation and nothing needs a sync. A crash can interrupt only changes of several objects: a log
// rewrite, or a base range across a piece border.
package radosstore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// Pool is a pool with a single writer. Each call is one operation on one object, durable if it
// returns no error. Errors that wrap fs.ErrNotExist and syscall.ENOSPC have their standard meaning,
// and nothing was changed; after other errors the outcome is unknown. Methods are safe for
// concurrent use.
type Pool interface {
	// WriteFull creates or replaces an object with the concatenation of these parts.
	WriteFull(name string, parts ...[]byte) error
	// Write writes at an offset of an object, and creates the object if it does not exist.
	Write(name string, b []byte, offset uint64) error
	// Read reads from an offset; it returns fewer bytes at the object's end.
	Read(name string, b []byte, offset uint64) (int, error)
	// Truncate truncates an object.
	Truncate(name string, size uint64) error
	// Size returns an object's length.
	Size(name string) (uint64, error)
	// Remove removes an object.
	Remove(name string) error
	// List returns the names of all objects, in any order.
	List() ([]string, error)
	// Path returns an object's name for messages.
	Path(name string) string
}

// object is an object being read; its beginning may have been read ahead.
type object struct {
	pool  Pool
	name  string
	begin []byte
	whole bool // begin holds the complete object
}

// readAhead opens an object by reading its first n bytes.
func readAhead(pool Pool, name string, n int) (*object, error) {
	b := make([]byte, n)
	read, err := pool.Read(name, b, 0)
	if err != nil {
		return nil, err
	}
	return &object{pool, name, b[:read], read < n}, nil
}

// ReadAt implements io.ReaderAt.
func (o *object) ReadAt(b []byte, offset int64) (int, error) {
	have := int64(len(o.begin))
	if o.whole || offset+int64(len(b)) <= have {
		n := 0
		if offset < have {
			n = copy(b, o.begin[offset:])
		}
		if n < len(b) {
			return n, io.EOF
		}
		return n, nil
	}
	n, err := o.pool.Read(o.name, b, uint64(offset))
	if err == nil && n < len(b) {
		err = io.EOF
	}
	return n, err
}

// missing reports whether an error means that an object does not exist.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// remove removes an object that may not exist.
func remove(pool Pool, name string) error {
	if err := pool.Remove(name); err != nil && !missing(err) {
		return fmt.Errorf("%s cannot be removed: %w", pool.Path(name), err)
	}
	return nil
}
