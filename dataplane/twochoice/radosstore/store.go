package radosstore

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"hotbed/dataplane/twochoice/filestore"
	"hotbed/dataplane/twochoice/protocol"
)

// Names of objects: a fragment is "f.<client>.<count>" as in a folder. A base is
// "b.<hash>.<number>" for each non-empty pieceSize bytes of the object. The log's objects are
// "l.<file>.<number>". The agent locks ownerName; namesName lists the log's files.
const (
	pieceSize = 4 << 20
	// headerAhead is the number of bytes first read of an unknown fragment: most headers fit.
	headerAhead = 4096
	// openAtOnce is the number of headers read concurrently when a store is opened.
	openAtOnce = 16
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
