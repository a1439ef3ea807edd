package redirectlog

import (
	"fmt"
	"slices"
)

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
