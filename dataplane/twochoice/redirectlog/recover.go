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

// window is the size of one read of a file, or of one write of a log.
const window = 1 << 20

// scanner holds the two copies of a log as read, of equal length.
type scanner struct {
	path   string
	copies [2][]byte
	unread [2]map[int]bool // unreadable sectors, by their first byte; zeros replace them
	lost   error           // reason
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

// readSectors reads all readable sectors.
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

// corrupt returns the error for a defect in both copies at a byte of the log.
func (s *scanner) corrupt(offset int, problem string) error {
	if s.lost != nil {
		return s.lost
	}
	return fmt.Errorf("the redirect log %s is corrupt at byte %d: %s; it was left as it is and not used, since it may be all "+
		"that locates acknowledged data: restore it from a copy, or move it and the data next to it away if all of that may be "+
		"lost", s.path, inFile(int64(offset)), problem)
}

// scanned is the result of reading a log.
type scanned struct {
	header header
	frames []frame
	log    []byte // the header and the frames
}

// scan reads the header and all frames that are intact in one copy. The copies' headers may differ,
// for example after a misdirected write of another file or with a stale sector. Then the header
// that more sectors agree with wins, and after that the newer.
func (s *scanner) scan(owner uint32) (*scanned, error) {
	var best *scanned
	problem := s.corrupt(0, "its header is damaged")
	for _, b := range s.copies {
		h, intact := decodeHeader(b)
		switch {
		case !intact:
		case h.version != Version:
			problem = fmt.Errorf("the redirect log %s is of version %d, and this program knows version %d; it was left as it "+
				"is: start the agent that wrote it", s.path, h.version, Version)
		case h.owner != owner:
			problem = fmt.Errorf("the redirect log %s is of OSD %d, not of OSD %d; it was left as it is: give each agent the "+
				"folder of its own OSD", s.path, h.owner, owner)
		case best == nil || best.header != h:
			found := &scanned{header: h, log: slices.Clone(b[:headerSize])}
			s.frames(found)
			n := uint64(len(found.frames))
			switch {
			case n < h.first:
				problem = s.corrupt(len(found.log), fmt.Sprintf("record %d of the %d that the file was begun with is damaged",
					n+1, h.first))
			case best == nil || s.agree(found) > s.agree(best) ||
				s.agree(found) == s.agree(best) && h.generation > best.header.generation:
				best = found
			}
		}
	}
	if best == nil {
		return nil, problem
	}
	return best, nil
}

// agree returns the number of sectors of both copies that match a log.
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

// frames reads frames up to the first that is intact in neither copy.
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

// mostMixed limits the differing sectors of a frame that is combined from both copies.
const mostMixed = 8

// frame reads a frame from either copy, or combines both if different sectors are damaged.
func (s *scanner) frame(at int, generation, number uint64) (frame, bool) {
	whole := func(b []byte) (frame, bool) {
		f, intact := decodeFrame(b, generation)
		return f, intact && f.number == number
	}
	for _, b := range s.copies {
		if f, ok := whole(b[at:]); ok {
			return f, true
		}
	}
	end := min(at+max(claimed(s.copies[0][at:]), claimed(s.copies[1][at:])), len(s.copies[0]))
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

// torn returns the number of bytes that a crashed append left after the last intact frame. The
// append was unacknowledged only if one copy is incomplete, because both copies are written before
// the acknowledgement, and if no later append exists. Otherwise the frame is damaged:
// the log is refused.
func (s *scanner) torn(out *scanned) (int64, error) {
	at, next := len(out.log), uint64(len(out.frames))+1
	left, partial, followed := 0, false, true
	for c, b := range s.copies {
		rest := b[at:]
		n := len(bytes.TrimRight(rest, "\x00"))
		left = max(left, n)
		if s.damagedAt(c, out.log) {
			continue // the rest of a damaged sector proves nothing
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

// damagedAt reports whether a copy's sector at the log's end is known to be damaged.
func (s *scanner) damagedAt(c int, log []byte) bool {
	from := len(log) - len(log)%sectorSize
	return s.unread[c][from] || !bytes.Equal(s.copies[c][from:len(log)], log[from:])
}

// follows reports whether b contains a frame after its first: a whole frame, or the next frame's
// header. Either proves that the first was acknowledged. A header must be in both copies, because
// one may be misdirected from another file.
func follows(b []byte, generation, number uint64) (whole, begun bool) {
	for at := 8; at+frameNamed <= len(b); at += 8 {
		if binary.LittleEndian.Uint32(b[at:]) != frameMagic {
			continue
		}
		f, intact := decodeFrame(b[at:], generation)
		whole = whole || intact && f.number > number
		begun = begun || binary.LittleEndian.Uint64(b[at+8:]) == number+1
	}
	return whole, begun
}

// isPartial reports whether a crash can have left b, the rest of a copy from a log byte on, during
// a frame's append: one sector is unwritten, and the written sectors are intact.
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
	size := claimed(b)
	for from := first; from < size; from += sectorSize {
		if missing(from, min(from+sectorSize, size)) {
			return true
		}
	}
	return false
}

// read reads the file, replaces its torn tail with the entry `cut`, and repairs copies.
func (j *Journal) read(cut []byte, take func(entries []byte) error) (Recovery, error) {
	s, size, err := load(j.file, j.path)
	if err != nil {
		return Recovery{}, err
	}
	found, err := s.scan(j.owner)
	if err != nil {
		return Recovery{}, err
	}
	out := Recovery{}
	if out.TornBytes, err = s.torn(found); err != nil {
		return out, err
	}
	if out.TornBytes > 0 {
		out.TornAt = inFile(int64(len(found.log)))
		b := endFrame(append(make([]byte, frameHeader), cut...), 0, found.header.generation, uint64(len(found.frames))+1)
		f, _ := decodeFrame(b, found.header.generation)
		found.frames, found.log = append(found.frames, f), append(found.log, b...)
	}
	at := int64(headerSize)
	for _, f := range found.frames {
		if err := take(f.payload); err != nil {
			return out, fmt.Errorf("the redirect log %s has a record at byte %d that does not belong to this cluster: %w; it was "+
				"left as it is and not used: start the agent with the cluster file that the log was written with", j.path,
				inFile(at), err)
		}
		at += int64(len(f.raw))
	}
	// The bytes read may exist only in memory, written by a process that was killed before syncing.
	// They count from now on, so they must be durable; so must the log's name.
	if err = j.repair(s, found.log, size, &out); err == nil {
		err = j.file.Sync()
	}
	if err == nil {
		err = j.fsys.SyncFolder()
	}
	if err != nil {
		return out, fmt.Errorf("the redirect log %s cannot be made durable: %w", j.path, err)
	}
	j.resume(found.header.generation, uint64(len(found.frames)), found.log)
	return out, nil
}

// misses reports whether a sector of a block is unreadable.
func (s *scanner) misses(c, block int) bool {
	for at := block; at < block+blockSize; at += sectorSize {
		if s.unread[c][at] {
			return true
		}
	}
	return false
}

// repair rewrites blocks in which a copy differs from the log, and cuts the file off after them.
func (j *Journal) repair(s *scanner, log []byte, size int64, out *Recovery) error {
	block := make([]byte, blockSize)
	for at := 0; at < len(log); at += blockSize {
		clear(block[copy(block, log[at:]):])
		for c, b := range s.copies {
			if at < len(b) && bytes.Equal(b[at:at+blockSize], block) && !s.misses(c, at) {
				continue
			}
			if _, err := j.file.WriteAt(block, 2*int64(at)+int64(c)*blockSize); err != nil {
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
	if err := j.file.Sync(); err != nil { // without it a crash could lose the cut
		return err
	}
	return j.file.Truncate(end)
}
