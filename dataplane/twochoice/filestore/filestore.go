// Package filestore keeps an object server's data on local files: fragments of the two-choice
// protocol, and the base of the objects that are at home there. It is the scheduler's second
// backend, closest to the prototype of Dai et al. (section V).
//
// It uses the small file interface of redirectlog, so that the fault simulation can run the same
// code on disks that fill up, fail and lose unsynced data.
package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"syscall"

	"hotbed/dataplane/twochoice/protocol"
	"hotbed/dataplane/twochoice/redirectlog"
)

// FS is a folder of files that can be listed.
type FS interface {
	redirectlog.FS
	// Ensure opens a file with its content, and creates the file if it does not exist.
	Ensure(name string) (redirectlog.File, error)
	// List returns the names of all files, in any order.
	List() ([]string, error)
}

// Store is a store on a folder. A fragment is a file "f.<client>.<count>". It is written as
// "t.<client>.<count>", synced and renamed, so a file with an f is complete. A base is a file
// "b.<hash of the object's name>" with the object's bytes at their offsets. Methods are safe for
// concurrent use, except two writes of the same fragment or the same base bytes.
type Store struct {
	fsys  FS
	named sync.Map // bases with durable names
	begun bool     // it had a fragment or a base when opened
}

// Open removes leftovers of unfinished puts and lists the fragments. A fragment with a damaged
// header is listed by its write only, so that other fragments are still served. The names found
// must be made durable before any write, as OpenLog does.
func Open(fsys FS) (*Store, []protocol.Fragment, error) {
	s := &Store{fsys: fsys}
	names, err := fsys.List()
	if err != nil {
		return nil, nil, fmt.Errorf("the store cannot be listed: %w", err)
	}
	var out []protocol.Fragment
	for _, name := range names {
		s.begun = s.begun || strings.HasPrefix(name, "f.") || strings.HasPrefix(name, "b.")
		switch {
		case strings.HasPrefix(name, "t."):
			if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, nil, fmt.Errorf("an unfinished fragment cannot be removed: %w", err)
			}
		case strings.HasPrefix(name, "f."):
			h, err := s.header(name)
			f, err := Listed(name, fsys.Path(name), h, err)
			if err != nil {
				return nil, nil, err
			}
			out = append(out, f)
		case strings.HasPrefix(name, "b."):
			s.named.Store(name, nil)
		}
	}
	return s, out, nil
}

// header reads a fragment's header.
func (s *Store) header(name string) (Header, error) {
	file, err := s.fsys.Open(name)
	if err != nil {
		return Header{}, err
	}
	h, err := ReadHeader(file, s.fsys.Path(name))
	return h, errors.Join(err, file.Close())
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
		if done.Err = s.writeBase(op); done.Err == nil {
			done.Sums = protocol.SumsOf(op.From, op.Data)
		}
	case protocol.ReadBase:
		done.Data, done.Err = s.readBase(op)
	default:
		done.Err = fmt.Errorf("disk operation %d is not one of a store's", op.Kind)
	}
	done.Err = Known(op.Kind, done.Err)
	return done
}

// Known wraps errors that an agent survives. protocol.ErrFull: no space (on the disk, in a quota,
// or in a file at its maximum size). protocol.ErrDamaged: the disk cannot read its bytes; they are
// lost, but writes are not in doubt. After any other error an agent stops.
func Known(kind protocol.DiskKind, err error) error {
	reads := kind == protocol.GetFragment || kind == protocol.ReadBase
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return fmt.Errorf("%w: %w", protocol.ErrFull, err)
	case reads && errors.Is(err, syscall.EIO):
		return fmt.Errorf("%w: %w", protocol.ErrDamaged, err)
	}
	return err
}

// put writes a fragment. An existing name is complete, and stays.
func (s *Store) put(op protocol.DiskOp) error {
	h := HeaderOf(op)
	temporary := fileName("t", op.Write)
	file, err := s.fsys.Create(temporary)
	if err != nil {
		return err
	}
	head := h.Encode()
	if _, err = file.WriteAt(head, 0); err == nil {
		if _, err = file.WriteAt(op.Data, int64(len(head))); err == nil {
			err = file.Sync()
		}
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		if err = s.fsys.Rename(temporary, h.Name()); err == nil {
			if err = s.fsys.SyncFolder(); err == nil {
				return nil
			}
			temporary = h.Name()
		}
	}
	return errors.Join(err, s.fsys.Remove(temporary))
}

// get reads a part of a fragment, with the surrounding blocks for their checksums.
func (s *Store) get(op protocol.DiskOp) ([]byte, error) {
	name := FragmentName(op.Write)
	file, err := s.fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, protocol.ErrGone
	}
	if err != nil {
		return nil, err
	}
	var data []byte
	h, err := ReadHeader(file, s.fsys.Path(name))
	if err == nil {
		data, err = h.Read(file, s.fsys.Path(name), op)
	}
	return data, errors.Join(err, file.Close())
}

func (s *Store) drop(op protocol.DiskOp) error {
	err := s.fsys.Remove(FragmentName(op.Write))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// writeBase writes a range of a base while other ranges may be written. A write must not truncate
// an existing file, nor rely on another write to make a new base's name durable.
func (s *Store) writeBase(op protocol.DiskOp) error {
	name := BaseName(op.Object)
	file, err := s.fsys.Ensure(name)
	if err != nil {
		return err
	}
	if _, err = file.WriteAt(op.Data, int64(op.From)); err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if _, durable := s.named.Load(name); err != nil || durable {
		return err
	}
	if err = s.fsys.SyncFolder(); err == nil {
		s.named.Store(name, nil)
	}
	return err
}

func (s *Store) readBase(op protocol.DiskOp) ([]byte, error) {
	name := BaseName(op.Object)
	return ReadBase(op, s.fsys.Path(name), func(b []byte, offset uint64) error {
		file, err := s.fsys.Open(name)
		if err != nil {
			return err
		}
		_, err = file.ReadAt(b, int64(offset))
		return errors.Join(err, file.Close())
	})
}

// LogName is the name of an agent's redirect log.
const LogName = "redirect.log"

// Keeper stores fragments and bases: a Store, or an implementation without files.
type Keeper interface {
	Do(op protocol.DiskOp) protocol.DiskDone
}

// Disk is the on-disk state of an agent: its store and its redirect log.
type Disk struct {
	store   Keeper
	journal *redirectlog.Journal
}

// Found is the content of a disk when an agent starts.
type Found struct {
	Fragments []protocol.Fragment
	Records   []protocol.Record
	Recovery  redirectlog.Recovery
}

// OpenDisk opens a node's folder, or initializes an empty one.
func OpenDisk(fsys FS, node protocol.Node) (*Disk, Found, error) {
	store, fragments, err := Open(fsys)
	if err != nil {
		return nil, Found{}, err
	}
	return OpenLog(fsys, node, store, fragments, store.begun)
}

// OpenLog opens a node's redirect log next to a store with these fragments. It starts a new log
// only for an empty store: without the log, nobody knows which stored bytes count.
func OpenLog(fsys redirectlog.FS, node protocol.Node, store Keeper, fragments []protocol.Fragment,
	begun bool) (*Disk, Found, error) {
	found := Found{Fragments: fragments}
	journal, recovery, err := redirectlog.OpenJournal(fsys, LogName, uint32(node), begun, protocol.CutRecord().Append(nil),
		func(entries []byte) error {
			records, err := protocol.DecodeRecords(entries)
			found.Records = append(found.Records, records...)
			return err
		})
	if err != nil {
		return nil, found, err
	}
	found.Recovery = recovery
	return &Disk{store, journal}, found, nil
}

// Do carries out a disk operation. Log operations must not run concurrently.
func (d *Disk) Do(op protocol.DiskOp) protocol.DiskDone {
	write := d.journal.Append
	switch op.Kind {
	case protocol.CompactLog:
		write = d.journal.Replace
	case protocol.WriteLog:
	default:
		return d.store.Do(op)
	}
	entries := make([][]byte, len(op.Records))
	for i, r := range op.Records {
		entries[i] = r.Append(nil)
	}
	err := write(entries)
	if errors.Is(err, redirectlog.ErrUnwritten) {
		err = fmt.Errorf("%w: %w", protocol.ErrFull, err)
	}
	return protocol.DiskDone{Op: op.Op, Err: err}
}

// Close closes the log.
func (d *Disk) Close() error { return d.journal.Close() }
