package redirectlog

import "fmt"

// snapshotPayload is about how long the frames of a rewritten log are.
const snapshotPayload = 64 << 10

// suffix is what an unfinished rewrite is called in addition.
const suffix = ".new"

// FileNames are the names that the files of a log of this name may have, for an FS that has no others.
func FileNames(name string) []string { return []string{name, name + suffix} }

// Replace puts a new journal of these entries in the place of the old one, when it is durable, so
// that there is a whole one at any time. On an error the old one is in use, and the error is a
// *FullError or a *WriteError; or the journal has failed (a *FailedError), when it is not known which
// of the two is in use.
func (j *Journal) Replace(entries []Entry) error {
	if j.failed != nil {
		return j.failed
	}
	return j.replace(func(write func(*Entry) error) error {
		for i := range entries {
			if err := write(&entries[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// replace writes what `all` hands to its argument to a file of a temporary name, and gives it the
// journal's.
func (j *Journal) replace(all func(write func(*Entry) error) error) error {
	file, err := j.fsys.Create(j.name + suffix)
	if err != nil {
		return unwritten(j.path, err)
	}
	w := &rewriter{file: file, generation: j.generation + 1, end: headerSize}
	if err = all(w.entry); err == nil {
		err = w.flush()
	}
	if err == nil {
		h := header{version: Version, owner: j.owner, generation: w.generation, first: w.frames}
		err = writeAll(file, h.encode(), 0)
	}
	if err == nil {
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
		_ = j.file.Close() // the old one, whose name is gone
	}
	j.file, j.generation, j.number, j.end, j.entries = file, w.generation, w.frames, w.end, w.entries
	return nil
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

// rewriter writes entries in frames.
type rewriter struct {
	file       File
	generation uint64
	end        int64
	frames     uint64
	entries    uint64
	b          []byte
}

func (w *rewriter) entry(e *Entry) error {
	if len(w.b) == 0 {
		w.b = beginFrame(w.b)
	}
	w.b = appendEntry(w.b, e)
	w.entries++
	if len(w.b) < snapshotPayload {
		return nil
	}
	return w.flush()
}

func (w *rewriter) flush() error {
	if len(w.b) == 0 {
		return nil
	}
	w.frames++
	w.b = endFrame(w.b, 0, w.generation, w.frames, changesFrame)
	if err := writeAll(w.file, w.b, w.end); err != nil {
		return err
	}
	w.end += int64(len(w.b))
	w.b = w.b[:0]
	return nil
}

func writeAll(file File, b []byte, offset int64) error {
	n, err := file.WriteAt(b, offset)
	if err == nil && n < len(b) {
		err = fmt.Errorf("only %d of %d bytes were written", n, len(b))
	}
	return err
}
