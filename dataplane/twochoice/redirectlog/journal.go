package redirectlog

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"hotbed/dataplane/twochoice"
)

// Entry is a record of a journal: a change of a table (none if Kind is 0), and a note for the
// writer's own use.
type Entry struct {
	Record twochoice.Record
	Note   []byte
}

// Journal is the file of a log: entries in frames, appended durably, read again after a crash, and
// rewritten when mostly dead. Store keeps a table with it. An agent with its own table writes and
// syncs first, and changes the table afterwards. Append and Replace may run in another goroutine
// than the table, one at a time.
type Journal struct {
	fsys       FS
	name, path string
	file       File
	owner      twochoice.Server

	generation uint64
	number     uint64 // of the last frame
	end        int64  // of the log
	tail       []byte // the log's bytes in its last, partial block
	entries    uint64 // in the file
	buffer     []byte
	pairs      []byte
	failed     error
}

// Recovery reports what was found when a log was opened.
type Recovery struct {
	Created   bool  // there was no file
	Records   int   // records read
	Size      int64 // of the log, bytes
	TornAt    int64 // file offset at which a torn tail was cut off; 0 if none
	TornBytes int64 // length of the torn tail
	Repaired  int   // blocks damaged in one copy and rewritten from the other
	Leftover  bool  // an unfinished rewrite was removed
}

// OpenJournal reads a journal, or begins a new one if none exists (if mustExist, that is a
// *MissingError). `take` gets the entries in order; its error is returned as a *RecordError. Blocks
// damaged in one copy are rewritten from the other. A torn tail (the rest of an unacknowledged last
// append after a crash) is cut off. The entries of `cut` replace the tail, so that the log records
// the cut. Any other defect is refused and the file left unchanged: *CorruptError, *VersionError,
// *OwnerError and *RecordError.
func OpenJournal(fsys FS, name string, owner twochoice.Server, mustExist bool, cut []Entry,
	take func(Entry) error) (*Journal, Recovery, error) {
	j := &Journal{fsys: fsys, name: name, path: fsys.Path(name), owner: owner}
	leftover := true
	if err := fsys.Remove(name + suffix); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, Recovery{}, fmt.Errorf("an unfinished rewrite of the redirect log %s cannot be "+
				"removed: %w", j.path, err)
		}
		leftover = false
	}
	file, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		if mustExist {
			return nil, Recovery{}, &MissingError{j.path}
		}
		if err := j.replace(func(func(*Entry)) error { return nil }); err != nil {
			return nil, Recovery{}, err
		}
		return j, Recovery{Created: true, Size: j.end, Leftover: leftover}, nil
	}
	if err != nil {
		return nil, Recovery{}, fmt.Errorf("the redirect log %s cannot be opened: %w", j.path, err)
	}
	j.file = file
	recovery, err := j.read(cut, take)
	if err != nil {
		_ = file.Close()
		return nil, Recovery{}, err
	}
	recovery.Leftover = leftover
	return j, recovery, nil
}

// Append appends entries durably: all of them or, on a *FullError or a *WriteError, none. After a
// *FailedError the outcome is unknown, and nothing more can be written.
func (j *Journal) Append(entries []Entry) error {
	if j.failed != nil {
		return j.failed
	}
	b := beginFrame(j.buffer[:0])
	for i := range entries {
		b = appendEntry(b, &entries[i])
	}
	j.buffer = b[:0]
	if len(b)-frameHeader > maxPayload {
		return &twochoice.ParameterError{Name: "the size of a commit",
			Value: fmt.Sprintf("%d bytes", len(b)-frameHeader), Allowed: "1 MiB; commit fewer changes at a time"}
	}
	if err := j.write(endFrame(b, 0, j.generation, j.number+1, changesFrame)); err != nil {
		return err
	}
	j.entries += uint64(len(entries))
	return nil
}

// write appends a frame durably. On failure the frame surely is not in the file, or the journal has
// failed.
func (j *Journal) write(frame []byte) error {
	blocks := append(slices.Clip(j.tail), frame...)
	j.pairs = appendPairs(j.pairs[:0], blocks)
	at := 2 * (j.end - int64(len(j.tail)))
	n, err := writeAll(j.file, j.pairs, at)
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
	return unwritten(j.path, err)
}

// undo restores the file's old end, from the last block on.
func (j *Journal) undo(at int64, written bool) error {
	j.pairs = appendPairs(j.pairs[:0], j.tail)
	if written && len(j.tail) > 0 {
		if _, err := writeAll(j.file, j.pairs, at); err != nil {
			return err
		}
	}
	if err := j.file.Truncate(at + int64(len(j.pairs))); err != nil {
		return err
	}
	return j.file.Sync()
}

func (j *Journal) fail(err error) error {
	j.failed = &FailedError{j.path, err}
	return j.failed
}

// Failed returns the reason (a *FailedError) why nothing can be written until the log is reopened,
// or nil. See Store.Failed for the server's duties then.
func (j *Journal) Failed() error { return j.failed }

// Size returns the log's length in bytes.
func (j *Journal) Size() int64 { return j.end }

// Close closes the log.
func (j *Journal) Close() error {
	j.failed = &FailedError{j.path, errors.New("it is closed")}
	return j.file.Close()
}
