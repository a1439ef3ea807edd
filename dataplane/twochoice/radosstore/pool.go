// Package radosstore keeps an object server's data in a pool of RADOS: fragments of the two-choice
// protocol, the base of the objects that are at home there, and the redirect log. The pool lies on one
// OSD alone, whose agent this is: where the paper's object server has a disk (section VI), this one has
// an OSD.
//
// RADOS does an operation on one object wholly or not at all, and answers when it is durable. So a
// fragment is one operation, there is nothing to sync, and what a crash leaves half done is only what
// takes several objects: a rewritten log, and a base's range over a border of its pieces.
package radosstore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// Pool is a pool that nobody else writes to. Each call is one operation on one object, durable when it
// returns without an error. Errors that wrap fs.ErrNotExist and syscall.ENOSPC mean what they do in the
// standard library, and that nothing was changed; after others it is not known what was. Its methods
// may be called from many goroutines.
type Pool interface {
	// WriteFull makes an object of these parts, one behind the other, or replaces one.
	WriteFull(name string, parts ...[]byte) error
	// Write writes at an offset of an object, which is made when it is not there.
	Write(name string, b []byte, offset uint64) error
	// Read reads from an offset on; fewer bytes than asked for where the object ends.
	Read(name string, b []byte, offset uint64) (int, error)
	// Truncate cuts an object.
	Truncate(name string, size uint64) error
	// Size is an object's length.
	Size(name string) (uint64, error)
	// Remove removes an object.
	Remove(name string) error
	// List names all objects, in any order.
	List() ([]string, error)
	// Path is what an object is called in messages.
	Path(name string) string
}

// object is an object as it is read; its beginning may have been read ahead.
type object struct {
	pool  Pool
	name  string
	begin []byte
	whole bool // begin is all that there is
}

// readAhead opens an object by reading so many bytes of it.
func readAhead(pool Pool, name string, n int) (*object, error) {
	b := make([]byte, n)
	read, err := pool.Read(name, b, 0)
	if err != nil {
		return nil, err
	}
	return &object{pool, name, b[:read], read < n}, nil
}

// ReadAt reads as io.ReaderAt does.
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

// missing says whether an object was not there.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// remove removes an object that may be gone already.
func remove(pool Pool, name string) error {
	if err := pool.Remove(name); err != nil && !missing(err) {
		return fmt.Errorf("%s cannot be removed: %w", pool.Path(name), err)
	}
	return nil
}
