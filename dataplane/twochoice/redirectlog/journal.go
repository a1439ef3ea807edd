package redirectlog

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"hotbed/dataplane/twochoice"
)

// Entry is a record of a journal: a change of a table (or none, when Kind is 0), and a note that
// whoever writes it understands.
type Entry struct {
	Record twochoice.Record
	Note   []byte
}

// Journal is the file of a log: entries in frames, appended durably, read again after a crash, and
// rewritten when most of them are dead. Store keeps a table by it; an agent that has a table of its
// own writes and syncs away from the table, and lets it change afterwards. Append and Replace may be
// called from another goroutine than the table's, one at a time.
type Journal struct {
	fsys       FS
	name, path string
	file       File
	owner      twochoice.Server

	generation uint64
	number     uint64 // of the last frame
	end        int64  // of the log
	tail       []byte // the log's bytes in its last block, if that is not full
	entries    uint64 // in the file
	buffer     []byte
	pairs      []byte
	failed     error
}

// Recovery tells what was found when a log was opened.
type Recovery struct {
	Created   bool  // there was no file
	Records   int   // that were read
	Size      int64 // of the log, bytes
	TornAt    int64 // where in the file a torn tail was cut off; 0 when there was none
	TornBytes int64 // how long it was
	Repaired  int   // blocks that were damaged in one copy and written again from the other
	Leftover  bool  // an unfinished rewrite was removed
}

// OpenJournal reads a journal, or begins one when there is none and there need not be one (else that is
// a *MissingError): `take` gets its entries in their order, and its error is returned as a *RecordError.
// What is damaged in one copy is written again from the other. A torn tail (the rest of the last append
// after a crash, which was not acknowledged) is cut off, and the entries of `cut` take its place, so that
// the log keeps that it was cut. Anything else that is wrong is refused, and the file left as it is:
// *CorruptError, *VersionError, *OwnerError and *RecordError.
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

// Append writes entries behind the others, durably: all of them or, on a *FullError or a *WriteError,
// none. After a *FailedError it is not known which, and nothing can be written any more.
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

// write appends a frame, durably. When it fails, the frame is surely not in the file, or the journal
// has failed.
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
			// What is durable now is unknown, and asking again would not tell: the system may have
			// dropped what it could not write.
			return j.fail(err)
		}
	}
	if undone := j.undo(at, n > 0); undone != nil {
		return j.fail(fmt.Errorf("%w, and then what was written of it could not be cut off: %w", err, undone))
	}
	return unwritten(j.path, err)
}

// undo makes the file end again as it did, from the last block on.
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

// Failed is why nothing can be written any more until the log is opened again (a *FailedError); nil
// while all is well. See Store.Failed for what its server has to do then.
func (j *Journal) Failed() error { return j.failed }

// Size is the log's length in bytes.
func (j *Journal) Size() int64 { return j.end }

// Close closes the log.
func (j *Journal) Close() error {
	j.failed = &FailedError{j.path, errors.New("it is closed")}
	return j.file.Close()
}
