package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"

	"hotbed/dataplane/twochoice/protocol"
	"hotbed/dataplane/twochoice/redirectlog"
)

// Objects keeps named objects, such as files or objects of a RADOS pool, for a single writer. A
// change is durable if it returns no error. Errors that wrap fs.ErrNotExist and syscall.ENOSPC have
// their standard meaning, and nothing was changed; after other errors the outcome is unknown. Methods
// are safe for concurrent use.
type Objects interface {
	// WriteFull creates or replaces an object with the concatenation of these parts, atomically.
	WriteFull(name string, parts ...[]byte) error
	// Write writes at an offset of an object, and creates the object if it does not exist.
	Write(name string, b []byte, offset uint64) error
	// Read reads from an offset; it returns fewer bytes at the object's end.
	Read(name string, b []byte, offset uint64) (int, error)
	// Remove removes an object.
	Remove(name string) error
	// Path returns an object's name for messages.
	Path(name string) string
}

// Store keeps fragments and bases. A fragment is the object "f.<client>.<count>". A base is
// "b.<hash of the object's name>" with the bytes at their offsets, or with a piece size
// "b.<hash>.<number>" for each non-empty piece. Methods are safe for concurrent use, except two
// writes of the same fragment or the same base bytes.
type Store struct {
	objects Objects
	piece   uint64 // bytes of a base in one object; 0 means all
	begun   bool   // it had a fragment or a base when opened

	mu sync.Mutex
	// spans holds the fragments' ranges, which determine a header's length before it is read.
	spans map[protocol.WriteID]span
}

type span struct{ from, to uint64 }

// NewStore returns a store on objects with these names, and its fragments. It reads this many headers
// concurrently. A fragment with a damaged header is listed by its write only, so that other fragments
// are still served.
func NewStore(objects Objects, names []string, piece uint64, atOnce int) (*Store, []protocol.Fragment, error) {
	s := &Store{objects: objects, piece: piece, spans: map[protocol.WriteID]span{}}
	var fragments []string
	for _, name := range names {
		if strings.HasPrefix(name, "f.") {
			fragments = append(fragments, name)
		}
		s.begun = s.begun || strings.HasPrefix(name, "f.") || strings.HasPrefix(name, "b.")
	}
	slices.Sort(fragments)
	out := make([]protocol.Fragment, len(fragments))
	errs := make([]error, len(fragments))
	var all sync.WaitGroup
	for first := range min(atOnce, len(fragments)) {
		all.Go(func() {
			for i := first; i < len(fragments); i += atOnce {
				out[i], errs[i] = listed(objects, fragments[i])
			}
		})
	}
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

// do carries out a disk operation, except log operations.
func (s *Store) do(op protocol.DiskOp) protocol.DiskDone {
	done := protocol.DiskDone{Op: op.Op}
	switch op.Kind {
	case protocol.PutFragment:
		done.Err = s.put(op)
	case protocol.GetFragment:
		done.Data, done.Err = s.get(op)
	case protocol.DropFragment:
		done.Err = s.drop(op)
	case protocol.WriteBase:
		if done.Err = s.pieces(op, s.objects.Write); done.Err == nil {
			done.Sums = protocol.SumsOf(op.From, op.Data)
		}
	case protocol.ReadBase:
		done.Data, done.Err = s.readBase(op)
	default:
		done.Err = fmt.Errorf("disk operation %d is not one of a store's", op.Kind)
	}
	done.Err = known(op.Kind, done.Err)
	return done
}

// known wraps errors that an agent survives. protocol.ErrFull: no space (on the disk, in a quota,
// or in a file at its maximum size). protocol.ErrDamaged: the disk cannot read its bytes; they are
// lost, but writes are not in doubt. After any other error an agent stops.
func known(kind protocol.DiskKind, err error) error {
	reads := kind == protocol.GetFragment || kind == protocol.ReadBase
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return fmt.Errorf("%w: %w", protocol.ErrFull, err)
	case reads && errors.Is(err, syscall.EIO):
		return fmt.Errorf("%w: %w", protocol.ErrDamaged, err)
	}
	return err
}

// put writes a fragment. An existing fragment has the same bytes, because each write's name is used
// once.
func (s *Store) put(op protocol.DiskOp) error {
	if err := s.objects.WriteFull(fragmentName(op.Write), headerOf(op).encode(), op.Data); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spans[op.Write] = span{op.From, op.To}
	return nil
}

// headerAhead is the number of bytes first read of an unknown fragment: most headers fit.
const headerAhead = 1024

// get reads a part of a fragment. It reads a part at the beginning in one operation with the header,
// except a long part of a file: a read into memory of its own is faster, because that is aligned.
func (s *Store) get(op protocol.DiskOp) ([]byte, error) {
	s.mu.Lock()
	whole, known := s.spans[op.Write]
	s.mu.Unlock()
	ahead := headerAhead
	if known && op.From >= whole.from && op.To <= whole.to {
		h := header{Fragment: protocol.Fragment{Object: op.Object, From: whole.from, To: whole.to}}
		ahead = h.size()
		if n := h.upTo(op.To); op.From == whole.from && (s.piece > 0 || n <= blockSize) {
			ahead += n
		}
	}
	data, err := readPart(s.objects, ahead, op)
	if errors.Is(err, fs.ErrNotExist) { // before or during the read
		return nil, protocol.ErrGone
	}
	return data, err
}

func (s *Store) drop(op protocol.DiskOp) error {
	s.mu.Lock()
	delete(s.spans, op.Write)
	s.mu.Unlock()
	err := s.objects.Remove(fragmentName(op.Write))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// pieces calls `do` for each object of a base in a range; data are the range's bytes.
func (s *Store) pieces(op protocol.DiskOp, do func(name string, b []byte, offset uint64) error) error {
	base := BaseName(op.Object)
	if s.piece == 0 {
		return do(base, op.Data, op.From)
	}
	data := op.Data
	for at := op.From; len(data) > 0; {
		number, offset := at/s.piece, at%s.piece
		n := min(uint64(len(data)), s.piece-offset)
		if err := do(fmt.Sprintf("%s.%x", base, number), data[:n], offset); err != nil {
			return err
		}
		at += n
		data = data[n:]
	}
	return nil
}

// readBase reads a range of a base and verifies it.
func (s *Store) readBase(op protocol.DiskOp) ([]byte, error) {
	out := make([]byte, op.To-op.From)
	if len(op.Sums) == 0 {
		return out, nil
	}
	start := op.Sums[0].From
	b := make([]byte, op.Sums[len(op.Sums)-1].To-start)
	err := s.pieces(protocol.DiskOp{Object: op.Object, From: start, Data: b},
		func(name string, b []byte, offset uint64) error {
			if _, err := s.objects.Read(name, b, offset); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		})
	if err != nil {
		return nil, err
	}
	for _, sum := range op.Sums {
		part := b[sum.From-start : sum.To-start]
		if !sum.Of(part) {
			return nil, fmt.Errorf("the base %s of %q is damaged: the checksum of bytes %d to %d is wrong: %w; restore "+
				"it from a copy", s.objects.Path(BaseName(op.Object)), op.Object, sum.From, sum.To, protocol.ErrDamaged)
		}
		from, to := max(sum.From, op.From), min(sum.To, op.To)
		copy(out[from-op.From:], part[from-sum.From:to-sum.From])
	}
	return out, nil
}

// LogName is the name of an agent's redirect log.
const LogName = "redirect.log"

// Disk is the on-disk state of an agent: its store and its redirect log.
type Disk struct {
	store   *Store
	journal *redirectlog.Journal
}

// Found is the content of a disk when an agent starts.
type Found struct {
	Fragments []protocol.Fragment
	Records   []protocol.Record
	Recovery  redirectlog.Recovery
}

// OpenLog opens a node's redirect log next to a store with these fragments. It starts a new log
// only for an empty store: without the log, nobody knows which stored bytes count.
func OpenLog(fsys redirectlog.FS, node protocol.Node, store *Store, fragments []protocol.Fragment) (*Disk, Found, error) {
	found := Found{Fragments: fragments}
	journal, recovery, err := redirectlog.OpenJournal(fsys, LogName, uint32(node), store.begun,
		protocol.CutRecord().Append(nil), func(entries []byte) (err error) {
			found.Records, err = protocol.AppendRecords(found.Records, entries)
			return err
		})
	if err != nil {
		return nil, found, err
	}
	found.Recovery = recovery
	return &Disk{store, journal}, found, nil
}

// usualEntry is the room for a log entry, which few exceed.
const usualEntry = 80

// Do carries out a disk operation. Log operations must not run concurrently.
func (d *Disk) Do(op protocol.DiskOp) protocol.DiskDone {
	write := d.journal.Append
	switch op.Kind {
	case protocol.CompactLog:
		write = d.journal.Replace
	case protocol.WriteLog:
	default:
		return d.store.do(op)
	}
	entries := make([][]byte, len(op.Records))
	for i, r := range op.Records {
		entries[i] = r.Append(make([]byte, 0, usualEntry))
	}
	err := write(entries)
	if errors.Is(err, redirectlog.ErrUnwritten) {
		err = fmt.Errorf("%w: %w", protocol.ErrFull, err)
	}
	return protocol.DiskDone{Op: op.Op, Err: err}
}

// Close closes the log.
func (d *Disk) Close() error { return d.journal.Close() }
