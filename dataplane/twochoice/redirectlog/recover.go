package redirectlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
)

// window is how much of a file is read, or of a log written, at once.
const window = 1 << 20

// scanner has the two copies of a log as they were read, equally long.
type scanner struct {
	path   string
	copies [2][]byte
	unread [2]map[int]bool // sectors that the disk cannot read, by their first byte; zeros stand for them
	lost   error           // why
}

// load reads both copies.
func load(file File, path string) (*scanner, int64, error) {
	s := &scanner{path: path, unread: [2]map[int]bool{{}, {}}}
	size, err := file.Size()
	if err != nil {
		return nil, 0, fmt.Errorf("the redirect log %s cannot be read: %w", path, err)
	}
	b := make([]byte, min(window, (size+2*blockSize-1)/(2*blockSize)*2*blockSize))
	for at := int64(0); at < size; at += window {
		n := min(window, size-at)
		clear(b[n:])
		err := readFull(file, b[:n], at)
		if errors.Is(err, syscall.EIO) {
			s.lost = unreadable(path, at, err)
			err = s.readSectors(file, b[:n], at)
		}
		if err != nil {
			return nil, 0, unreadable(path, at, err)
		}
		for i := int64(0); i < n; i += 2 * blockSize {
			for c := range s.copies {
				from := int(i) + c*blockSize
				s.copies[c] = append(s.copies[c], b[from:from+blockSize]...)
			}
		}
	}
	return s, size, nil
}

func unreadable(path string, at int64, err error) error {
	return fmt.Errorf("the redirect log %s cannot be read at byte %d: %w", path, at, err)
}

// readSectors reads what can be read.
func (s *scanner) readSectors(file File, b []byte, start int64) error {
	for i := 0; i < len(b); i += sectorSize {
		sector := b[i:min(i+sectorSize, len(b))]
		err := readFull(file, sector, start+int64(i))
		if errors.Is(err, syscall.EIO) {
			clear(sector)
			at := int(start) + i
			s.unread[at/blockSize%2][at/(2*blockSize)*blockSize+at%blockSize] = true
		} else if err != nil {
			return err
		}
	}
	return nil
}

func readFull(file File, b []byte, offset int64) error {
	n, err := file.ReadAt(b, offset)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// corrupt is the error for what is wrong in both copies at a byte of the log.
func (s *scanner) corrupt(offset int, problem string) error {
	if s.lost != nil {
		return s.lost
	}
	return &CorruptError{s.path, inFile(int64(offset)), problem}
}

// scanned is what was read of a log.
type scanned struct {
	header header
	frames []frame
	log    []byte // the header and the frames
}

// scan reads the header and all frames that are whole in one of the copies. Where the copies have
// different headers (a sector of another file was misdirected, or an old one is there still), the one
// counts that more sectors agree with, then the newer.
func (s *scanner) scan(j *Journal) (*scanned, error) {
	var best *scanned
	var problem error
	for c, b := range s.copies {
		h, text := decodeHeader(b)
		var err error
		switch {
		case text != "":
			err = s.corrupt(0, text)
		case h.version != Version:
			err = &VersionError{s.path, h.version, Version}
		case h.owner != j.owner:
			err = &OwnerError{s.path, h.owner, j.owner}
		case best != nil && best.header == h:
			continue
		default:
			found := &scanned{header: h, log: slices.Clone(b[:headerSize])}
			s.frames(found)
			if n := uint64(len(found.frames)); n < h.first {
				err = s.corrupt(len(found.log), fmt.Sprintf("record %d of the %d that the file was begun with is damaged",
					n+1, h.first))
			} else if best == nil || s.agree(found) > s.agree(best) ||
				s.agree(found) == s.agree(best) && h.generation > best.header.generation {
				best = found
			}
		}
		if c == 0 {
			problem = err
		}
	}
	if best == nil {
		return nil, problem
	}
	return best, nil
}

// agree is how many sectors of both copies are those of a log.
func (s *scanner) agree(found *scanned) int {
	n := 0
	for _, b := range s.copies {
		for at := 0; at < len(found.log); at += sectorSize {
			if sector := found.log[at:min(at+sectorSize, len(found.log))]; bytes.HasPrefix(b[at:], sector) {
				n++
			}
		}
	}
	return n
}

// frames reads frames up to the first that is whole in neither copy.
func (s *scanner) frames(out *scanned) {
	for {
		f, ok := s.frame(len(out.log), out.header.generation, uint64(len(out.frames))+1)
		if !ok {
			return
		}
		out.frames = append(out.frames, f)
		out.log = append(out.log, f.raw...)
	}
}

// mostMixed is how many sectors may differ between the copies of a frame that is put together from both.
const mostMixed = 8

// frame reads a frame from either copy or, when both are damaged in different sectors, from both.
func (s *scanner) frame(at int, generation, number uint64) (frame, bool) {
	whole := func(b []byte) (frame, bool) {
		f, problem := decodeFrame(b, generation)
		return f, problem == "" && f.number == number
	}
	for _, b := range s.copies {
		if f, ok := whole(b[at:]); ok {
			return f, true
		}
	}
	end := at + max(claimed(s.copies[0][at:]), claimed(s.copies[1][at:]))
	var differ [][2]int
	for from := at; from < end; {
		to := min(from-from%sectorSize+sectorSize, end)
		if !bytes.Equal(s.copies[0][from:to], s.copies[1][from:to]) {
			differ = append(differ, [2]int{from, to})
		}
		from = to
	}
	if len(differ) > mostMixed {
		return frame{}, false
	}
	for mask := 1; mask < 1<<len(differ)-1; mask++ {
		b := slices.Clone(s.copies[0][at:end])
		for i, d := range differ {
			if mask>>i&1 == 1 {
				copy(b[d[0]-at:], s.copies[1][d[0]:d[1]])
			}
		}
		if f, ok := whole(b); ok {
			return f, true
		}
	}
	return frame{}, false
}

// claimed is how long the frame that begins b says that it is, whether or not that can be believed; 0
// when it does not say.
func claimed(b []byte) int {
	if len(b) < 8 || binary.LittleEndian.Uint32(b) != frameMagic {
		return 0
	}
	return min(len(b), frameHeader+padded(int(min(binary.LittleEndian.Uint32(b[4:]), maxPayload))))
}

// torn is how many bytes behind the last whole frame a crash has left of an append. That was not
// acknowledged only if one of its copies is not there to its full length, as the second is written
// before an append is acknowledged, and if nothing was appended later. Otherwise it is rotten: a
// *CorruptError.
func (s *scanner) torn(out *scanned) (int64, error) {
	at, next := len(out.log), uint64(len(out.frames))+1
	left, partial, followed := 0, false, true
	for c, b := range s.copies {
		rest := b[at:]
		n := len(bytes.TrimRight(rest, "\x00"))
		left = max(left, n)
		if s.damagedAt(c, out.log) {
			continue // what follows in that sector proves nothing
		}
		if n > frameHeader+maxPayload {
			return 0, s.corrupt(at, "more is unreadable than one append can be")
		}
		whole, begun := follows(rest[:n], out.header.generation, next)
		if whole {
			return 0, s.corrupt(at, fmt.Sprintf("record %d is damaged in both copies, and a later one is whole", next))
		}
		followed = followed && begun
		partial = partial || isPartial(rest, at, next)
	}
	if followed || !partial {
		return 0, s.corrupt(at, fmt.Sprintf("record %d was written to its full length and is damaged in both copies", next))
	}
	return int64(left), nil
}

// damagedAt reports whether a copy of the sector that a log ends in is known to be damaged.
func (s *scanner) damagedAt(c int, log []byte) bool {
	from := len(log) - len(log)%sectorSize
	return s.unread[c][from] || !bytes.Equal(s.copies[c][from:len(log)], log[from:])
}

// follows reports whether a later frame than the one that begins b is in it: a whole one, or the header
// of the next. Either proves that the one before was acknowledged; the header only where it is in both
// copies, since it may be a misdirected one of another file.
func follows(b []byte, generation, number uint64) (whole, begun bool) {
	for at := 8; at+frameNamed <= len(b); at += 8 {
		if binary.LittleEndian.Uint32(b[at:]) != frameMagic {
			continue
		}
		f, bad := decodeFrame(b[at:], generation)
		whole = whole || bad == "" && f.number > number
		begun = begun || binary.LittleEndian.Uint64(b[at+8:]) == number+1
	}
	return whole, begun
}

// isPartial reports whether a crash can have left b, the rest of a copy from a byte of the log on, of
// the append of a frame: a sector of it was not written, and those that were are as written.
func isPartial(b []byte, at int, number uint64) bool {
	missing := func(from, to int) bool {
		return len(bytes.TrimLeft(b[min(from, len(b)):min(to, len(b))], "\x00")) == 0
	}
	first := sectorSize - at%sectorSize
	if missing(0, first) {
		return true
	}
	if binary.LittleEndian.Uint32(b) != frameMagic || binary.LittleEndian.Uint32(b[4:]) > maxPayload ||
		first >= frameNamed && binary.LittleEndian.Uint64(b[8:]) != number {
		return false
	}
	size := frameHeader + padded(int(binary.LittleEndian.Uint32(b[4:])))
	for from := first; from < size; from += sectorSize {
		if missing(from, min(from+sectorSize, size)) {
			return true
		}
	}
	return false
}

// take hands on the entries of all frames.
func (s *scanner) take(frames []frame, out *Recovery, take func(Entry) error) error {
	at := headerSize
	for _, f := range frames {
		if f.kind != changesFrame {
			return s.corrupt(at, fmt.Sprintf("a record is of kind %d, which there is not", f.kind))
		}
		for b := f.payload; len(b) > 0; out.Records++ {
			e, rest, err := nextEntry(b)
			if err != nil {
				return s.corrupt(at, err.Error())
			}
			if err := take(e); err != nil {
				return &RecordError{s.path, inFile(int64(at)), err}
			}
			b = rest
		}
		at += len(f.raw)
	}
	return nil
}

// read takes in the file, replaces its torn tail by the entries of `cut`, and repairs damaged copies.
func (j *Journal) read(cut []Entry, take func(Entry) error) (Recovery, error) {
	s, size, err := load(j.file, j.path)
	if err != nil {
		return Recovery{}, err
	}
	found, err := s.scan(j)
	if err != nil {
		return Recovery{}, err
	}
	out := Recovery{}
	if out.TornBytes, err = s.torn(found); err != nil {
		return out, err
	}
	if out.TornBytes > 0 {
		out.TornAt = inFile(int64(len(found.log)))
		if len(cut) > 0 {
			b := beginFrame(nil)
			for i := range cut {
				b = appendEntry(b, &cut[i])
			}
			b = endFrame(b, 0, found.header.generation, uint64(len(found.frames))+1, changesFrame)
			f, _ := decodeFrame(b, found.header.generation)
			found.frames, found.log = append(found.frames, f), append(found.log, b...)
		}
	}
	if err := s.take(found.frames, &out, take); err != nil {
		return out, err
	}
	// What was read may be in memory only, of a process that was killed before it was durable. From
	// here on it counts, so it has to last; so has the log's name.
	if err = j.repair(s, found.log, size, &out); err == nil {
		err = j.file.Sync()
	}
	if err == nil {
		err = j.fsys.SyncFolder()
	}
	if err != nil {
		return out, fmt.Errorf("the redirect log %s cannot be made durable: %w", j.path, err)
	}
	j.generation, j.number = found.header.generation, uint64(len(found.frames))
	j.endAt(found.log)
	j.entries = uint64(out.Records)
	out.Size = j.end
	return out, nil
}

// misses reports whether some sector of a block cannot be read.
func (s *scanner) misses(c, block int) bool {
	for at := block; at < block+blockSize; at += sectorSize {
		if s.unread[c][at] {
			return true
		}
	}
	return false
}

// repair writes the blocks of a log that a copy has otherwise, and cuts the file off behind them.
func (j *Journal) repair(s *scanner, log []byte, size int64, out *Recovery) error {
	block := make([]byte, blockSize)
	for at := 0; at < len(log); at += blockSize {
		clear(block[copy(block, log[at:]):])
		for c, b := range s.copies {
			if at < len(b) && bytes.Equal(b[at:at+blockSize], block) && !s.misses(c, at) {
				continue
			}
			if _, err := writeAll(j.file, block, 2*int64(at)+int64(c)*blockSize); err != nil {
				return err
			}
			if at+blockSize <= len(log) || out.TornBytes == 0 {
				out.Repaired++
			}
		}
	}
	end := 2 * int64((len(log)+blockSize-1)/blockSize*blockSize)
	if size <= end {
		return nil
	}
	if err := j.file.Sync(); err != nil { // or a crash could leave nothing of the cut
		return err
	}
	return j.file.Truncate(end)
}
