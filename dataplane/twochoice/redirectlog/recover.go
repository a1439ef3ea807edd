package redirectlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

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

// scanned is what was read of a log.
type scanned struct {
	header header
	number uint64 // of the last frame
	end    int64
	Recovery
}

// scan reads a log and hands its entries on. The torn tail is not cut off yet.
func (s *scanner) scan(j *Journal, take func(Entry) error) (scanned, error) {
	var out scanned
	begin, err := s.bytes(0)
	if err != nil {
		return out, err
	}
	h, problem := decodeHeader(begin)
	switch {
	case problem != "":
		return out, s.corrupt(0, problem)
	case h.version != Version:
		return out, &VersionError{s.path, h.version, Version}
	case h.owner != j.owner:
		return out, &OwnerError{s.path, h.owner, j.owner}
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
		if err := s.take(&out, f, take); err != nil {
			return out, err
		}
		out.number, out.end = f.number, out.end+f.size
	}
	if out.number < h.first {
		return out, s.corrupt(out.end, fmt.Sprintf("the file ends after %d of the %d records that it was "+
			"begun with", out.number, h.first))
	}
	return out, nil
}

// torn is nil when what begins at the end of what could be read may be the last append, torn by a
// crash: it is not longer than one, and nothing that was appended later comes after it, whole or torn
// itself. (That one was acknowledged, since the next was begun.)
func (s *scanner) torn(at scanned, b []byte, problem string) error {
	left := s.size - at.end
	if at.number < at.header.first || left > frameHeader+maxPayload {
		return s.corrupt(at.end, problem)
	}
	for next := 8; next+frameNamed <= len(b); next += 8 {
		if binary.LittleEndian.Uint32(b[next:]) != frameMagic {
			continue
		}
		_, bad := decodeFrame(b[next:], at.header.generation)
		number := binary.LittleEndian.Uint64(b[next+8:])
		if bad == "" || number == at.number+2 {
			return s.corrupt(at.end, fmt.Sprintf("%s, and record %d follows at byte %d", problem, number,
				at.end+int64(next)))
		}
	}
	if size := claimed(b); size < len(b) && len(bytes.Trim(b[size:], "\x00")) > 0 {
		return s.corrupt(at.end, fmt.Sprintf("%s, and another record was begun behind it", problem))
	}
	return nil
}

// claimed is how long the frame that begins b says that it is, whether or not that can be believed; the
// length of b when it does not say.
func claimed(b []byte) int {
	if len(b) < frameHeader || binary.LittleEndian.Uint32(b) != frameMagic {
		return len(b)
	}
	return min(len(b), frameHeader+padded(int(min(binary.LittleEndian.Uint32(b[4:]), maxPayload))))
}

// take hands on a frame's entries.
func (s *scanner) take(out *scanned, f frame, take func(Entry) error) error {
	if f.kind != changesFrame && f.kind != closedFrame {
		return s.corrupt(out.end, fmt.Sprintf("a record is of kind %d, which there is not", f.kind))
	}
	out.Clean = f.kind == closedFrame
	for b := f.payload; len(b) > 0; out.Records++ {
		e, rest, err := nextEntry(b)
		if err != nil {
			return s.corrupt(out.end, err.Error())
		}
		if err := take(e); err != nil {
			return &RecordError{s.path, out.end, err}
		}
		b = rest
	}
	return nil
}

// read takes in the file and cuts off its torn tail.
func (j *Journal) read(take func(Entry) error) (Recovery, error) {
	size, err := j.file.Size()
	if err != nil {
		return Recovery{}, fmt.Errorf("the redirect log %s cannot be read: %w", j.path, err)
	}
	s := &scanner{file: j.file, path: j.path, size: size}
	found, err := s.scan(j, take)
	if err != nil {
		return Recovery{}, err
	}
	if found.end < size {
		found.TornAt, found.TornBytes = found.end, size-found.end
		if err := j.file.Truncate(found.end); err != nil {
			return Recovery{}, fmt.Errorf("the torn tail of the redirect log %s cannot be cut off: %w",
				j.path, err)
		}
	}
	// What was read may be in memory only, of a process that was killed before it was durable. From
	// here on it counts, so it has to last; so has the log's name.
	if err = j.file.Sync(); err == nil {
		err = j.fsys.SyncFolder()
	}
	if err != nil {
		return Recovery{}, fmt.Errorf("the redirect log %s cannot be made durable: %w", j.path, err)
	}
	j.generation, j.number, j.end = found.header.generation, found.number, found.end
	j.entries = uint64(found.Records)
	found.Size = found.end
	return found.Recovery, nil
}
