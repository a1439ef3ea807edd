package redirectlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"hotbed/dataplane/twochoice"
)

// suffix is what an unfinished rewrite is called in addition.
const suffix = ".new"

// window is how much of a file is read at once; it holds at least one frame.
const window = 4 << 20

// scanner reads a log from its start to its end.
type scanner struct {
	file File
	path string
	size int64
	base int64 // of the buffer in the file
	b    []byte
}

// bytes are those of the file from an offset on: a whole frame if there is one.
func (s *scanner) bytes(offset int64) ([]byte, error) {
	needed := min(offset+frameHeader+maxPayload, s.size)
	if offset < s.base || needed > s.base+int64(len(s.b)) {
		n := min(window, s.size-offset)
		s.b = make([]byte, n)
		s.base = offset
		if read, err := s.file.ReadAt(s.b, offset); int64(read) < n {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("the redirect log %s cannot be read at byte %d: %w", s.path,
				offset+int64(read), err)
		}
	}
	return s.b[offset-s.base:], nil
}

func (s *scanner) corrupt(offset int64, problem string) error {
	return &CorruptError{s.path, offset, problem}
}

// recovered is what a log amounts to.
type recovered struct {
	header header
	number uint64 // of the last frame
	end    int64
	Recovery
}

// scan reads a log into a table. The torn tail is not cut off yet.
func (s *scanner) scan(home twochoice.Server, table *twochoice.Table) (recovered, error) {
	var out recovered
	first, err := s.bytes(0)
	if err != nil {
		return out, err
	}
	h, problem := decodeHeader(first)
	switch {
	case problem != "":
		return out, s.corrupt(0, problem)
	case h.version != Version:
		return out, &VersionError{s.path, h.version, Version}
	case h.home != home:
		return out, &OwnerError{s.path, h.home, home}
	}
	out.header, out.end = h, headerSize
	for out.end < s.size {
		b, err := s.bytes(out.end)
		if err != nil {
			return out, err
		}
		f, problem := decodeFrame(b, h.generation)
		if problem == "" && f.number != out.number+1 {
			return out, s.corrupt(out.end, fmt.Sprintf("record %d follows record %d", f.number, out.number))
		}
		if problem != "" {
			if err := s.torn(out, b, problem); err != nil {
				return out, err
			}
			break
		}
		if f.number == h.snapshot+1 {
			table.Resume(h.last, h.time)
		}
		if err := s.take(&out, f, table); err != nil {
			return out, err
		}
		out.number, out.end = f.number, out.end+f.size
	}
	if out.number < h.snapshot {
		return out, s.corrupt(out.end, fmt.Sprintf("the file ends after %d of the %d records that it was "+
			"begun with", out.number, h.snapshot))
	}
	table.Resume(h.last, h.time)
	return out, nil
}

// torn is nil when what begins at the end of what could be read may be the last commit, torn by a
// crash: it is not longer than one, and nothing whole comes after it.
func (s *scanner) torn(at recovered, b []byte, problem string) error {
	left := s.size - at.end
	if at.number < at.header.snapshot || left > frameHeader+maxPayload {
		return s.corrupt(at.end, problem)
	}
	for next := 8; next+frameHeader <= len(b); next += 8 {
		if binary.LittleEndian.Uint32(b[next:]) != frameMagic {
			continue
		}
		if f, bad := decodeFrame(b[next:], at.header.generation); bad == "" {
			return s.corrupt(at.end, fmt.Sprintf("%s, and record %d follows whole at byte %d", problem,
				f.number, at.end+int64(next)))
		}
	}
	return nil
}

// take applies a frame's records.
func (s *scanner) take(out *recovered, f frame, table *twochoice.Table) error {
	snapshot := f.number <= out.header.snapshot
	if snapshot != (f.kind == snapshotFrame) || f.kind < changesFrame || f.kind > closedFrame {
		return s.corrupt(out.end, fmt.Sprintf("a record of kind %d is out of place", f.kind))
	}
	out.Clean = f.kind == closedFrame
	for b := f.payload; len(b) > 0; out.Records++ {
		r, rest, err := nextRecord(b)
		if err != nil {
			return s.corrupt(out.end, err.Error())
		}
		if snapshot != (r.Kind == twochoice.Held) {
			return s.corrupt(out.end, fmt.Sprintf("a record that is %s is out of place", r.Kind))
		}
		if _, err := table.Apply(r, nil); err != nil {
			return &RecordError{s.path, out.end, err}
		}
		b = rest
	}
	return nil
}

// Open reads a log and makes its table again, or makes an empty one when there is none. A torn tail
// (what a crash left of the last commit, which was not acknowledged) is cut off. Whatever else is
// wrong is refused, and the file left as it is: *CorruptError, *VersionError, *OwnerError and
// *RecordError. Of the last commit alone nothing can tell whether a crash tore it or the disk spoilt
// it later; Close and Mark end a log by a frame without records, so that it is not the last.
func Open(fsys FS, name string, home twochoice.Server, servers *twochoice.Servers, size uint64,
	o Options) (*Store, Recovery, error) {
	table, err := twochoice.NewTable(home, servers, size)
	if err != nil {
		return nil, Recovery{}, err
	}
	s := &Store{fsys: fsys, name: name, path: fsys.Path(name), table: table, o: o}
	leftover := true
	if err := fsys.Remove(name + suffix); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, Recovery{}, fmt.Errorf("an unfinished rewrite of the redirect log cannot be "+
				"removed: %w", err)
		}
		leftover = false
	}
	file, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		if o.MustExist {
			return nil, Recovery{}, &MissingError{s.path}
		}
		if err := s.create(); err != nil {
			return nil, Recovery{}, err
		}
		return s, Recovery{Created: true, Size: s.end, Leftover: leftover}, nil
	}
	if err != nil {
		return nil, Recovery{}, fmt.Errorf("the redirect log %s cannot be opened: %w", s.path, err)
	}
	s.file = file
	recovery, err := s.read()
	if err != nil {
		_ = file.Close()
		return nil, Recovery{}, err
	}
	recovery.Leftover = leftover
	return s, recovery, nil
}

// read takes in the file and cuts off its torn tail.
func (s *Store) read() (Recovery, error) {
	size, err := s.file.Size()
	if err != nil {
		return Recovery{}, fmt.Errorf("the redirect log %s cannot be read: %w", s.path, err)
	}
	scanner := &scanner{file: s.file, path: s.path, size: size}
	found, err := scanner.scan(s.table.Home(), s.table)
	if err != nil {
		return Recovery{}, err
	}
	if found.end < size {
		found.TornAt, found.TornBytes = found.end, size-found.end
		if err := s.file.Truncate(found.end); err != nil {
			return Recovery{}, fmt.Errorf("the torn tail of the redirect log %s cannot be cut off: %w",
				s.path, err)
		}
	}
	// What was read may be in memory only, of a process that was killed before it was durable. From
	// here on it counts, so it has to last; so has the log's name.
	err = s.file.Sync()
	if err == nil {
		err = s.fsys.SyncFolder()
	}
	if err != nil {
		return Recovery{}, fmt.Errorf("the redirect log %s cannot be made durable: %w", s.path, err)
	}
	s.generation, s.number, s.end = found.header.generation, found.number, found.end
	s.records = uint64(found.Records)
	found.Size = found.end
	return found.Recovery, nil
}

// cut ends the file there, durably.
func (s *Store) cut(end int64) error {
	if err := s.file.Truncate(end); err != nil {
		return err
	}
	return s.file.Sync()
}
