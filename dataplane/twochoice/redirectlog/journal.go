package redirectlog

import (
	"errors"
	"fmt"
	"io/fs"

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
	end        int64  // of the file
	entries    uint64 // in the file
	buffer     []byte
	failed     error
}

// Recovery tells what was found when a log was opened.
type Recovery struct {
	Created   bool  // there was no file
	Records   int   // that were read
	Size      int64 // of the file, bytes
	TornAt    int64 // where a torn tail was cut off; 0 when there was none
	TornBytes int64 // how long it was
	Clean     bool  // the log had been closed, or marked
	Leftover  bool  // an unfinished rewrite was removed
}

// OpenJournal reads a journal, or begins one when there is none and there need not be one (else that is
// a *MissingError): `take` gets its entries in their order, and its error is returned as a *RecordError. A torn tail (what a crash left of the last
// append, which was not acknowledged) is cut off. Whatever else is wrong is refused, and the file
// left as it is: *CorruptError, *VersionError, *OwnerError and *RecordError. Of the last append alone
// nothing can tell whether a crash tore it or the disk spoilt it later; Close and Mark end a log by a
// frame without entries, so that it is not the last.
func OpenJournal(fsys FS, name string, owner twochoice.Server, mustExist bool,
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
		if err := j.replace(func(func(*Entry) error) error { return nil }); err != nil {
			return nil, Recovery{}, err
		}
		return j, Recovery{Created: true, Size: j.end, Leftover: leftover}, nil
	}
	if err != nil {
		return nil, Recovery{}, fmt.Errorf("the redirect log %s cannot be opened: %w", j.path, err)
	}
	j.file = file
	recovery, err := j.read(take)
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
	err := writeAll(j.file, frame, j.end)
	if err == nil {
		if err = j.file.Sync(); err == nil {
			j.end += int64(len(frame))
			j.number++
			return nil
		}
		if !full(err) {
			// What is durable now is unknown, and asking again would not tell: the system may have
			// dropped what it could not write.
			return j.fail(err)
		}
	}
	cut := j.file.Truncate(j.end)
	if cut == nil {
		cut = j.file.Sync()
	}
	if cut != nil {
		return j.fail(fmt.Errorf("%w, and then what was written of it could not be cut off: %w", err, cut))
	}
	return unwritten(j.path, err)
}

func (j *Journal) fail(err error) error {
	j.failed = &FailedError{j.path, err}
	return j.failed
}

// Failed is why nothing can be written any more until the log is opened again (a *FailedError); nil
// while all is well. See Store.Failed for what its server has to do then.
func (j *Journal) Failed() error { return j.failed }

// Size is the file's length in bytes.
func (j *Journal) Size() int64 { return j.end }

// Mark ends the log by a frame without entries: when it has been idle for a while, what the disk
// spoils later is never taken for a torn tail.
func (j *Journal) Mark() error {
	if j.failed != nil {
		return j.failed
	}
	return j.write(endFrame(beginFrame(j.buffer[:0]), 0, j.generation, j.number+1, closedFrame))
}

// Close marks the log's end and closes it. A log that has failed, or whose disk is full, is closed
// without a mark.
func (j *Journal) Close() error {
	var marked error
	if j.failed == nil {
		marked = j.Mark()
	}
	j.failed = &FailedError{j.path, errors.New("it is closed")}
	if err := j.file.Close(); err != nil {
		return err
	}
	if full(marked) {
		return nil
	}
	return marked
}
