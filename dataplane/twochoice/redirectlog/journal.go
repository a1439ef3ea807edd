package redirectlog

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
)

// ErrUnwritten is wrapped by the error of a change that surely is not in the log, for example because
// the disk is full. The log is usable.
var ErrUnwritten = errors.New("nothing was changed")

// Journal is the file of a log: entries in frames, appended durably, read again after a crash, and
// rewritten when mostly dead. An agent writes and syncs first, and changes its table afterwards. Its
// methods run one at a time, but may run in another goroutine than the table.
type Journal struct {
	fsys       FS
	name, path string
	file       File
	owner      uint32

	generation uint64
	number     uint64 // of the last frame
	end        int64  // of the log
	tail       []byte // the log's bytes in its last, partial block
	buffer     []byte // of the last frame
	pairs      []byte
	failed     error
}

// Recovery reports what was found when a log was opened.
type Recovery struct {
	TornAt    int64 // file offset at which a torn tail was cut off; 0 if none
	TornBytes int64 // length of the torn tail
	Repaired  int   // blocks damaged in one copy and rewritten from the other
}

// OpenJournal reads an owner's journal, or begins a new one if none exists (an error that wraps
// fs.ErrNotExist if mustExist). `take` gets the entries of each frame, in order, one after the other.
// Blocks damaged in one copy are rewritten from the other. A torn tail (the rest of an unacknowledged
// last append after a crash) is cut off. The entry `cut` replaces the tail, so that the log records
// the cut. A log with any other defect, of another version or owner, or with entries that `take`
// refuses, is refused and left unchanged.
func OpenJournal(fsys FS, name string, owner uint32, mustExist bool, cut []byte,
	take func(entries []byte) error) (*Journal, Recovery, error) {
	j := &Journal{fsys: fsys, name: name, path: fsys.Path(name), owner: owner}
	if err := fsys.Remove(name + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, Recovery{}, fmt.Errorf("an unfinished rewrite of the redirect log %s cannot be removed: %w", j.path, err)
	}
	file, err := fsys.Open(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && mustExist:
		return nil, Recovery{}, fmt.Errorf("the redirect log %s is not there though this OSD had one; restore it from a copy, or "+
			"move the data next to it away too if all of that may be lost: %w", j.path, err)
	case errors.Is(err, fs.ErrNotExist):
		return j, Recovery{}, j.Replace(nil)
	case err != nil:
		return nil, Recovery{}, fmt.Errorf("the redirect log %s cannot be opened: %w", j.path, err)
	}
	j.file = file
	recovery, err := j.read(cut, take)
	if err != nil {
		_ = file.Close()
		return nil, Recovery{}, err
	}
	return j, recovery, nil
}

// Append appends entries durably: all of them or, on an error that wraps ErrUnwritten, none. After
// any other error the outcome is unknown, and nothing more can be written.
func (j *Journal) Append(entries [][]byte) error {
	if j.failed != nil {
		return j.failed
	}
	frame := append(j.buffer[:0], make([]byte, frameHeader)...)
	for _, entry := range entries {
		frame = append(frame, entry...)
	}
	if n := len(frame) - frameHeader; n > maxPayload {
		return fmt.Errorf("%d bytes are too many for one append: %w", n, ErrUnwritten)
	}
	frame = endFrame(frame, 0, j.generation, j.number+1)
	j.buffer = frame
	blocks := append(slices.Clip(j.tail), frame...)
	j.pairs = appendPairs(j.pairs[:0], blocks)
	at := 2 * (j.end - int64(len(j.tail)))
	n, err := j.file.WriteAt(j.pairs, at)
	if err == nil {
		if err = j.file.Sync(); err == nil {
			j.end += int64(len(frame))
			j.number++
			j.tail = blocks[len(blocks)-len(blocks)%blockSize:]
			return nil
		}
		if !full(err) {
			// Now it is unknown what is durable, and a second sync would not show it: the system
			// may have dropped what it could not write.
			return j.fail(err)
		}
	}
	if undone := j.undo(at, n > 0); undone != nil {
		return j.fail(fmt.Errorf("%w, and then what was written of it could not be cut off: %w", err, undone))
	}
	return j.unwritten(err)
}

// undo restores the file's old end, from the last block on.
func (j *Journal) undo(at int64, written bool) error {
	j.pairs = appendPairs(j.pairs[:0], j.tail)
	if written && len(j.tail) > 0 {
		if _, err := j.file.WriteAt(j.pairs, at); err != nil {
			return err
		}
	}
	if err := j.file.Truncate(at + int64(len(j.pairs))); err != nil {
		return err
	}
	return j.file.Sync()
}

// full reports whether an error means a full disk or an exhausted quota.
func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

func (j *Journal) unwritten(err error) error {
	return fmt.Errorf("the redirect log %s cannot be written: %w: %w", j.path, err, ErrUnwritten)
}

func (j *Journal) fail(err error) error {
	j.failed = fmt.Errorf("the redirect log %s failed: %w; it is not known what the disk holds of the last change: check the "+
		"disk and start the agent again", j.path, err)
	return j.failed
}

// Close closes the log.
func (j *Journal) Close() error {
	j.failed = fmt.Errorf("the redirect log %s is closed", j.path)
	return j.file.Close()
}

// snapshotPayload is the approximate frame length of a rewritten log.
const snapshotPayload = 64 << 10

// suffix marks the file of an unfinished rewrite.
const suffix = ".new"

// FileNames returns the possible file names of a log, for an FS with no other files.
func FileNames(name string) []string { return []string{name, name + suffix} }

// Replace replaces the journal with a new journal of these entries once the new one is durable, so
// that an intact journal always exists. On an error that wraps ErrUnwritten the old journal is in
// use. After any other error it is unknown which journal is in use, and nothing more can be written.
func (j *Journal) Replace(entries [][]byte) error {
	if j.failed != nil {
		return j.failed
	}
	h := header{version: Version, owner: j.owner, generation: j.generation + 1}
	size := 0
	for _, entry := range entries {
		size += len(entry)
	}
	frames := size/snapshotPayload + 1
	log := make([]byte, headerSize, headerSize+size+frames*(frameHeader+8))
	for len(entries) > 0 {
		from := len(log)
		log = append(log, make([]byte, frameHeader)...)
		for len(entries) > 0 && len(log)-from < snapshotPayload {
			log = append(log, entries[0]...)
			entries = entries[1:]
		}
		h.first++
		log = endFrame(log, from, h.generation, h.first)
	}
	copy(log, h.encode())
	file, err := j.fsys.Create(j.name + suffix)
	if err != nil {
		return j.unwritten(err)
	}
	for at := 0; at < len(log) && err == nil; at += window {
		j.pairs = appendPairs(j.pairs[:0], log[at:min(at+window, len(log))])
		_, err = file.WriteAt(j.pairs, 2*int64(at))
	}
	if err == nil {
		err = file.Sync()
	}
	if err != nil {
		_ = file.Close()
		_ = j.fsys.Remove(j.name + suffix)
		return j.unwritten(err)
	}
	if err := j.adopt(); err != nil {
		_ = file.Close()
		return err
	}
	if j.file != nil {
		_ = j.file.Close() // the old file, now without a name
	}
	j.file = file
	j.resume(h.generation, h.first, log)
	return nil
}

// resume sets the journal's end to the end of a log.
func (j *Journal) resume(generation, number uint64, log []byte) {
	j.generation, j.number, j.end = generation, number, int64(len(log))
	j.tail = slices.Clone(log[len(log)-len(log)%blockSize:])
}

// adopt gives the new file the journal's name, durably.
func (j *Journal) adopt() error {
	if err := j.fsys.Rename(j.name+suffix, j.name); err != nil {
		if full(err) {
			_ = j.fsys.Remove(j.name + suffix)
			return j.unwritten(err)
		}
		return j.fail(err)
	}
	if err := j.fsys.SyncFolder(); err != nil {
		return j.fail(err)
	}
	return nil
}
