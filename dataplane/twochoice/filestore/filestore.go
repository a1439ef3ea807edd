// Package filestore keeps an object server's data on local files: fragments of the two-choice protocol,
// and the base of the objects that are at home there. The second backend of the scheduler, closest to
// the prototype of Dai et al. (section V).
//
// It goes through the small interface of files of redirectlog, so that the fault simulation puts the
// same code on disks that fill up, fail and lose what was not synced.
package filestore

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"strings"
	"syscall"

	"hotbed/dataplane/twochoice/protocol"
	"hotbed/dataplane/twochoice/redirectlog"
)

// FS is a folder of files that can be listed.
type FS interface {
	redirectlog.FS
	// List names all files, in any order.
	List() ([]string, error)
}

// A fragment is a file "f.<client>.<count>", in hexadecimal: a header, then the bytes. It is written
// as "t.<client>.<count>", synced and renamed: a file with an f is whole.
//
//	0 magic (8)  8 version (4)  12 home (4)  16 client (8)  24 count (8)  32 from (8)  40 to (8)
//	48 length of the name (4)  52 the name, then a CRC-32C for each block of the bytes (4 each),
//	then one of all that (4)
//
// A base is a file "b.<hash of the object's name>" that holds the object's bytes at their offsets.
const (
	version = 1
	fixed   = 52
	// blockSize is what one checksum is of.
	blockSize = 64 << 10
)

var (
	magic      = [8]byte{'H', 'B', 'F', 'R', 'A', 'G', 'M', '\n'}
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// Store is a store on a folder. Its methods may be called from many goroutines, but not two at a time
// that write the same fragment or the same bytes of a base.
type Store struct{ fsys FS }

// Open removes what unfinished puts left and lists the fragments. A fragment whose header is damaged
// is an error that names it: it may be the only copy of acknowledged bytes.
func Open(fsys FS) (*Store, []protocol.Fragment, error) {
	s := &Store{fsys}
	names, err := fsys.List()
	if err != nil {
		return nil, nil, fmt.Errorf("the store cannot be listed: %w", err)
	}
	var out []protocol.Fragment
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "t."):
			if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, nil, fmt.Errorf("an unfinished fragment cannot be removed: %w", err)
			}
		case strings.HasPrefix(name, "f."):
			h, err := s.header(name)
			if err != nil {
				return nil, nil, err
			}
			if h.name() != name {
				return nil, nil, fmt.Errorf("%s holds fragment %v of %q; it was left as it is: give each agent its "+
					"own folder", fsys.Path(name), h.Write, h.Object)
			}
			out = append(out, h.Fragment)
		}
	}
	return s, out, nil
}

// header is a fragment's.
type header struct {
	protocol.Fragment
	sums []uint32
}

func fileName(kind string, w protocol.WriteID) string {
	return fmt.Sprintf("%s.%016x.%x", kind, w.Client, w.Seq)
}

func (h header) name() string { return fileName("f", h.Write) }

func blocks(n uint64) int { return int((n + blockSize - 1) / blockSize) }

// size is the header's length.
func (h header) size() int { return fixed + len(h.Object) + 4*blocks(h.To-h.From) + 4 }

func (h header) encode() []byte {
	b := append(make([]byte, 0, h.size()), magic[:]...)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.Node))
	for _, v := range [...]uint64{h.Write.Client, h.Write.Seq, h.From, h.To} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(h.Object)))
	b = append(b, h.Object...)
	for _, sum := range h.sums {
		b = binary.LittleEndian.AppendUint32(b, sum)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// header reads a fragment's header.
func (s *Store) header(name string) (header, error) {
	file, err := s.fsys.Open(name)
	if err != nil {
		return header{}, err
	}
	h, err := s.readHeader(file, name)
	return h, errors.Join(err, file.Close())
}

func (s *Store) damaged(name, problem string) error {
	return fmt.Errorf("the fragment %s is damaged: %s: %w; restore it from a copy", s.fsys.Path(name), problem,
		protocol.ErrDamaged)
}

func (s *Store) readHeader(file redirectlog.File, name string) (header, error) {
	var h header
	b := make([]byte, fixed)
	if err := readFull(file, b, 0); err != nil {
		return h, s.unreadable(name, err)
	}
	length, from, to := binary.LittleEndian.Uint32(b[48:]), binary.LittleEndian.Uint64(b[32:]),
		binary.LittleEndian.Uint64(b[40:])
	switch v := binary.LittleEndian.Uint32(b[8:]); {
	case [8]byte(b[:8]) != magic:
		return h, s.damaged(name, "it does not begin as a fragment does")
	case v != version:
		return h, fmt.Errorf("the fragment %s is of version %d, and this program knows version %d; start the "+
			"agent that wrote it", s.fsys.Path(name), v, version)
	case length > protocol.MaxName || to <= from || to-from > protocol.MaxData:
		return h, s.damaged(name, "its header cannot be")
	}
	h.Node = protocol.Node(binary.LittleEndian.Uint32(b[12:]))
	h.Write = protocol.WriteID{Client: binary.LittleEndian.Uint64(b[16:]), Seq: binary.LittleEndian.Uint64(b[24:])}
	h.From, h.To = from, to
	rest := make([]byte, int(length)+4*blocks(to-from)+4)
	if err := readFull(file, rest, fixed); err != nil {
		return h, s.unreadable(name, err)
	}
	h.Object = string(rest[:length])
	for sums := rest[length : len(rest)-4]; len(sums) > 0; sums = sums[4:] {
		h.sums = append(h.sums, binary.LittleEndian.Uint32(sums))
	}
	sum := crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, rest[:len(rest)-4])
	if sum != binary.LittleEndian.Uint32(rest[len(rest)-4:]) {
		return h, s.damaged(name, "its header's checksum is wrong")
	}
	return h, nil
}

func (s *Store) unreadable(name string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return s.damaged(name, "it is cut off")
	}
	return fmt.Errorf("%s cannot be read: %w", s.fsys.Path(name), err)
}

func readFull(file redirectlog.File, b []byte, offset int64) error {
	n, err := file.ReadAt(b, offset)
	if n == len(b) {
		return nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// Do carries a disk operation of an agent's out, other than those of its log.
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
		done.Err = s.writeBase(op)
	case protocol.ReadBase:
		done.Data, done.Err = s.readBase(op)
	default:
		done.Err = fmt.Errorf("disk operation %d is not one of a store's", op.Kind)
	}
	if full(done.Err) {
		done.Err = fmt.Errorf("%w: %w", protocol.ErrFull, done.Err)
	}
	return done
}

// full says whether an error is a full disk or an exhausted quota.
func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// put writes a fragment; a name that is there is there whole, and stays.
func (s *Store) put(op protocol.DiskOp) error {
	h := header{Fragment: protocol.Fragment{Object: op.Object, Write: op.Write, Node: op.Node, From: op.From,
		To: op.To}}
	for at := 0; at < len(op.Data); at += blockSize {
		h.sums = append(h.sums, crc32.Checksum(op.Data[at:min(at+blockSize, len(op.Data))], castagnoli))
	}
	temporary := fileName("t", op.Write)
	file, err := s.fsys.Create(temporary)
	if err != nil {
		return err
	}
	head := h.encode()
	if _, err = file.WriteAt(head, 0); err == nil {
		if _, err = file.WriteAt(op.Data, int64(len(head))); err == nil {
			err = file.Sync()
		}
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		if err = s.fsys.Rename(temporary, h.name()); err == nil {
			if err = s.fsys.SyncFolder(); err == nil {
				return nil
			}
			temporary = h.name()
		}
	}
	return errors.Join(err, s.fsys.Remove(temporary))
}

// get reads a part of a fragment, with the blocks around it for their checksums.
func (s *Store) get(op protocol.DiskOp) ([]byte, error) {
	name := fileName("f", op.Write)
	file, err := s.fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, protocol.ErrGone
	}
	if err != nil {
		return nil, err
	}
	data, err := s.read(file, name, op)
	return data, errors.Join(err, file.Close())
}

func (s *Store) read(file redirectlog.File, name string, op protocol.DiskOp) ([]byte, error) {
	h, err := s.readHeader(file, name)
	switch {
	case err != nil:
		return nil, err
	case h.Object != op.Object || op.From < h.From || op.To > h.To || op.From >= op.To:
		return nil, s.damaged(name, fmt.Sprintf("it holds %d to %d of %q", h.From, h.To, h.Object))
	}
	first := (op.From - h.From) / blockSize
	start := first * blockSize
	end := min((uint64(blocks(op.To-h.From)))*blockSize, h.To-h.From)
	b := make([]byte, end-start)
	if err := readFull(file, b, int64(h.size())+int64(start)); err != nil {
		return nil, s.unreadable(name, err)
	}
	for i := 0; i*blockSize < len(b); i++ {
		if crc32.Checksum(b[i*blockSize:min((i+1)*blockSize, len(b))], castagnoli) != h.sums[int(first)+i] {
			return nil, s.damaged(name, fmt.Sprintf("the checksum of byte %d is wrong", h.From+start+uint64(i)*blockSize))
		}
	}
	from := op.From - h.From - start
	return b[from : from+op.To-op.From], nil
}

func (s *Store) drop(op protocol.DiskOp) error {
	err := s.fsys.Remove(fileName("f", op.Write))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func baseName(object string) string {
	sum := sha256.Sum256([]byte(object))
	return fmt.Sprintf("b.%x", sum[:16])
}

func (s *Store) writeBase(op protocol.DiskOp) error {
	name := baseName(op.Object)
	file, err := s.fsys.Open(name)
	created := errors.Is(err, fs.ErrNotExist)
	if created {
		file, err = s.fsys.Create(name)
	}
	if err != nil {
		return err
	}
	if _, err = file.WriteAt(op.Data, int64(op.From)); err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil && created {
		err = s.fsys.SyncFolder()
	}
	return err
}

func (s *Store) readBase(op protocol.DiskOp) ([]byte, error) {
	out := make([]byte, op.To-op.From)
	file, err := s.fsys.Open(baseName(op.Object))
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	_, err = file.ReadAt(out, int64(op.From)) // what is beyond the file's end is zeros
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return out, errors.Join(err, file.Close())
}
