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
	"slices"
	"strings"
	"sync"

	"hotbed/dataplane/twochoice/filestore"
	"hotbed/dataplane/twochoice/protocol"
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

// Names of objects: a fragment is "f.<client>.<count>" as in a folder. A base is
// "b.<hash>.<number>" for each non-empty pieceSize bytes of the object. The log's objects are
// "l.<file>.<number>". The agent locks ownerName; namesName lists the log's files.
const (
	pieceSize = 4 << 20
	// headerAhead is the number of bytes first read of an unknown fragment: most headers fit.
	headerAhead = 4096
	// OwnerName is the object that an agent locks to own a pool.
	OwnerName = "owner"
	namesName = "log.names"
)

// Store is a store on a pool. Methods are safe for concurrent use, except two writes of the same
// fragment or the same base bytes.
type Store struct {
	pool Pool

	mu sync.Mutex
	// spans holds the fragments' ranges, which determine a header's length before it is read.
	spans map[protocol.WriteID]span
}

type span struct{ from, to uint64 }

// open lists the fragments among the objects.
func open(pool Pool, names []string, atOnce int) (*Store, []protocol.Fragment, error) {
	s := &Store{pool: pool, spans: map[protocol.WriteID]span{}}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasPrefix(name, "f.") })
	slices.Sort(names)
	out := make([]protocol.Fragment, len(names))
	errs := make([]error, len(names))
	next := make(chan int)
	var all sync.WaitGroup
	for range min(atOnce, len(names)) {
		all.Go(func() {
			for i := range next {
				out[i], errs[i] = s.header(names[i])
			}
		})
	}
	for i := range names {
		next <- i
	}
	close(next)
	all.Wait()
	for i, f := range out {
		if errs[i] != nil {
			return nil, nil, errs[i]
		}
		if f.Damage == "" {
			s.spans[f.Write] = span{f.From, f.To}
		}
	}
	return s, out, nil
}

// header reads the header of an existing fragment.
func (s *Store) header(name string) (protocol.Fragment, error) {
	path := s.pool.Path(name)
	file, err := readAhead(s.pool, name, headerAhead)
	if err != nil {
		return filestore.Listed(name, path, filestore.Header{}, fmt.Errorf("%s cannot be read: %w", path, err))
	}
	h, err := filestore.ReadHeader(file, path)
	return filestore.Listed(name, path, h, err)
}

// Do carries out an agent's disk operation, except log operations.
func (s *Store) Do(op protocol.DiskOp) protocol.DiskDone {
	done := protocol.DiskDone{Op: op.Op}
	switch op.Kind {
	case protocol.PutFragment:
		done.Err = s.put(op)
	case protocol.GetFragment:
		done.Data, done.Err = s.get(op)
	case protocol.DropFragment:
		done.Err = s.drop(op)
	case protocol.WriteBase:
		if done.Err = s.pieces(op, s.pool.Write); done.Err == nil {
			done.Sums = protocol.SumsOf(op.From, op.Data)
		}
	case protocol.ReadBase:
		done.Data, done.Err = s.readBase(op)
	default:
		done.Err = fmt.Errorf("disk operation %d is not one of a store's", op.Kind)
	}
	done.Err = filestore.Known(op.Kind, done.Err)
	return done
}

// put writes a fragment, header and bytes, in one operation, so an object with its name is
// complete. An existing fragment has the same bytes, because each write's name is used once.
func (s *Store) put(op protocol.DiskOp) error {
	h := filestore.HeaderOf(op)
	if err := s.pool.WriteFull(h.Name(), h.Encode(), op.Data); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spans[op.Write] = span{op.From, op.To}
	return nil
}

// get reads a part of a fragment: in one operation if the part is at its beginning.
func (s *Store) get(op protocol.DiskOp) ([]byte, error) {
	name := filestore.FragmentName(op.Write)
	s.mu.Lock()
	whole, known := s.spans[op.Write]
	s.mu.Unlock()
	ahead := headerAhead
	if known && op.From >= whole.from && op.To <= whole.to {
		h := filestore.Header{Fragment: protocol.Fragment{Object: op.Object, From: whole.from, To: whole.to}}
		ahead = h.Size()
		if begin := h.Begin(op.To); op.From == whole.from {
			ahead = begin
		}
	}
	data, err := s.read(name, ahead, op)
	if missing(err) { // before or during the read
		return nil, protocol.ErrGone
	}
	return data, err
}

// read reads a part of a fragment after reading `ahead` bytes of it first.
func (s *Store) read(name string, ahead int, op protocol.DiskOp) ([]byte, error) {
	file, err := readAhead(s.pool, name, ahead)
	if err != nil {
		return nil, err
	}
	path := s.pool.Path(name)
	h, err := filestore.ReadHeader(file, path)
	if err != nil {
		return nil, err
	}
	return h.Read(file, path, op)
}

func (s *Store) drop(op protocol.DiskOp) error {
	s.mu.Lock()
	delete(s.spans, op.Write)
	s.mu.Unlock()
	return remove(s.pool, filestore.FragmentName(op.Write))
}

// pieces calls `do` for each piece of a base in a range; data are the range's bytes.
func (s *Store) pieces(op protocol.DiskOp, do func(name string, b []byte, offset uint64) error) error {
	base := filestore.BaseName(op.Object)
	data := op.Data
	for at := op.From; len(data) > 0; {
		number, offset := at/pieceSize, at%pieceSize
		n := min(uint64(len(data)), pieceSize-offset)
		if err := do(fmt.Sprintf("%s.%x", base, number), data[:n], offset); err != nil {
			return err
		}
		at += n
		data = data[n:]
	}
	return nil
}

// readBase reads a range of a base.
func (s *Store) readBase(op protocol.DiskOp) ([]byte, error) {
	path := s.pool.Path(filestore.BaseName(op.Object))
	return filestore.ReadBase(op, path, func(b []byte, offset uint64) error {
		piece := protocol.DiskOp{Object: op.Object, From: offset, Data: b}
		return s.pieces(piece, func(name string, b []byte, offset uint64) error {
			if _, err := s.pool.Read(name, b, offset); err != nil && !missing(err) {
				return err
			}
			return nil
		})
	})
}

// OpenDisk opens an agent's data in its pool, or initializes an empty pool. It reads this many
// headers concurrently. A pool with foreign objects is refused and left unchanged.
func OpenDisk(pool Pool, node protocol.Node, atOnce int) (*filestore.Disk, filestore.Found, error) {
	objects, err := pool.List()
	if err != nil {
		return nil, filestore.Found{}, fmt.Errorf("the pool cannot be listed: %w", err)
	}
	begun := false
	for _, name := range objects {
		begun = begun || strings.HasPrefix(name, "f.") || strings.HasPrefix(name, "b.")
		kind, _, dotted := strings.Cut(name, ".")
		known := name == OwnerName || name == namesName || dotted && len(kind) == 1 && strings.Contains("fbl", kind)
		if !known {
			return nil, filestore.Found{}, fmt.Errorf("%s is not an agent's; give each agent a pool of its own",
				pool.Path(name))
		}
	}
	store, fragments, err := open(pool, objects, atOnce)
	if err != nil {
		return nil, filestore.Found{}, err
	}
	log, err := openFiles(pool, objects)
	if err != nil {
		return nil, filestore.Found{}, err
	}
	return filestore.OpenLog(log, node, store, fragments, begun)
}
