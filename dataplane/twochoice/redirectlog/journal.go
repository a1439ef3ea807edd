package redirectlog

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	"hotbed/dataplane/twochoice"
)

// CorruptError reports a log damaged in a way that no crash explains. The log is not opened,
// because its unreadable part may locate acknowledged data.
type CorruptError struct {
	File    string
	Offset  int64
	Problem string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("the redirect log %s is corrupt at byte %d: %s; it was left as it is and not "+
		"used, since it may be all that tells where acknowledged data is: restore it from a copy, or "+
		"move it and the data beside it away if all of that may be lost", e.File, e.Offset, e.Problem)
}

// RecordError reports an intact record that does not fit the table: it names an unknown OSD,
// exceeds its object, or does not follow the previous record.
type RecordError struct {
	File   string
	Offset int64 // of its frame
	Err    error
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("the redirect log %s has a record at byte %d that does not belong to this "+
		"cluster: %v; it was left as it is and not used: start the agent with the cluster map that the "+
		"log was written with", e.File, e.Offset, e.Err)
}

func (e *RecordError) Unwrap() error { return e.Err }

// VersionError reports a log that another version wrote.
type VersionError struct {
	File         string
	Found, Known uint32
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("the redirect log %s is of version %d, and this program knows version %d; it was "+
		"left as it is: start the agent that wrote it", e.File, e.Found, e.Known)
}

// OwnerError reports a log that belongs to another server.
type OwnerError struct {
	File         string
	Owner, Asked twochoice.Server
}

func (e *OwnerError) Error() string {
	return fmt.Sprintf("the redirect log %s is of OSD %d, not of OSD %d; it was left as it is: give each "+
		"agent the folder of its own OSD", e.File, e.Owner, e.Asked)
}

// MissingError reports that an expected log does not exist.
type MissingError struct{ File string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("the redirect log %s is not there though this OSD had one; restore it from a "+
		"copy, or move the data beside it away too if all of that may be lost", e.File)
}

// FullError reports a full disk. The table is unchanged, and works again when there is space.
type FullError struct {
	File string
	Err  error
}

func (e *FullError) Error() string {
	return fmt.Sprintf("the redirect log %s cannot grow: %v; nothing was changed: make room on its disk",
		e.File, e.Err)
}

func (e *FullError) Unwrap() error { return e.Err }

// WriteError reports a change that could not be written and surely is not in the log. The table is
// unchanged, and the log is usable.
type WriteError struct {
	File string
	Err  error
}

func (e *WriteError) Error() string {
	return fmt.Sprintf("the redirect log %s cannot be written: %v; nothing was changed", e.File, e.Err)
}

func (e *WriteError) Unwrap() error { return e.Err }

// FailedError reports that no further change is possible: see Store.Failed.
type FailedError struct {
	File string
	Err  error
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("the redirect log %s failed: %v; what the disk holds of the last change is not "+
		"known: see to the disk and start the agent again", e.File, e.Err)
}

func (e *FailedError) Unwrap() error { return e.Err }

// full reports whether an error means a full disk or an exhausted quota.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// unwritten returns the error for data that surely is not in the log.
func unwritten(file string, err error) error {
	if full(err) {
		return &FullError{file, err}
	}
	return &WriteError{file, err}
}

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

// snapshotPayload is the approximate frame length of a rewritten log.
const snapshotPayload = 64 << 10

// suffix marks the file of an unfinished rewrite.
const suffix = ".new"

// FileNames returns the possible file names of a log, for an FS with no other files.
func FileNames(name string) []string { return []string{name, name + suffix} }

// Replace replaces the journal with a new journal of these entries once the new one is durable, so
// that an intact journal always exists. On a *FullError or a *WriteError the old journal is in use.
// After a *FailedError it is unknown which journal is in use.
func (j *Journal) Replace(entries []Entry) error {
	if j.failed != nil {
		return j.failed
	}
	return j.replace(func(write func(*Entry)) error {
		for i := range entries {
			write(&entries[i])
		}
		return nil
	})
}

// replace writes the entries from `all` to a temporary file, and renames the file to the journal.
func (j *Journal) replace(all func(write func(*Entry)) error) error {
	w := &rewriter{generation: j.generation + 1, log: make([]byte, headerSize)}
	if err := all(w.entry); err != nil {
		return unwritten(j.path, err)
	}
	w.flush()
	copy(w.log, header{version: Version, owner: j.owner, generation: w.generation, first: w.frames}.encode())
	file, err := j.fsys.Create(j.name + suffix)
	if err != nil {
		return unwritten(j.path, err)
	}
	if err = w.write(file); err == nil {
		err = file.Sync()
	}
	if err != nil {
		_ = file.Close()
		_ = j.fsys.Remove(j.name + suffix)
		return unwritten(j.path, err)
	}
	if err := j.adopt(); err != nil {
		_ = file.Close()
		return err
	}
	if j.file != nil {
		_ = j.file.Close() // the old file, now without a name
	}
	j.file, j.generation, j.number, j.entries = file, w.generation, w.frames, w.entries
	j.endAt(w.log)
	return nil
}

// endAt sets the journal's end to the end of a log.
func (j *Journal) endAt(log []byte) {
	j.end = int64(len(log))
	j.tail = slices.Clone(log[len(log)-len(log)%blockSize:])
}

// adopt gives the new file the journal's name, durably.
func (j *Journal) adopt() error {
	if err := j.fsys.Rename(j.name+suffix, j.name); err != nil {
		if full(err) {
			_ = j.fsys.Remove(j.name + suffix)
			return unwritten(j.path, err)
		}
		return j.fail(err)
	}
	if err := j.fsys.SyncFolder(); err != nil {
		return j.fail(err)
	}
	return nil
}

// rewriter packs entries into the frames of a new log.
type rewriter struct {
	generation uint64
	log        []byte
	from       int // start of the current frame; 0: none
	frames     uint64
	entries    uint64
}

func (w *rewriter) entry(e *Entry) {
	if w.from == 0 {
		w.from = len(w.log)
		w.log = beginFrame(w.log)
	}
	w.log = appendEntry(w.log, e)
	w.entries++
	if len(w.log)-w.from >= snapshotPayload {
		w.flush()
	}
}

func (w *rewriter) flush() {
	if w.from == 0 {
		return
	}
	w.frames++
	w.log = endFrame(w.log, w.from, w.generation, w.frames, changesFrame)
	w.from = 0
}

// write writes the log in parts.
func (w *rewriter) write(file File) error {
	var pairs []byte
	for at := 0; at < len(w.log); at += window {
		pairs = appendPairs(pairs[:0], w.log[at:min(at+window, len(w.log))])
		if _, err := writeAll(file, pairs, 2*int64(at)); err != nil {
			return err
		}
	}
	return nil
}

func writeAll(file File, b []byte, offset int64) (int, error) {
	n, err := file.WriteAt(b, offset)
	if err == nil && n < len(b) {
		err = fmt.Errorf("only %d of %d bytes were written", n, len(b))
	}
	return n, err
}
