package redirectlog

import (
	"fmt"

	"hotbed/dataplane/twochoice"
)

// snapshotPayload is about how long the frames of a snapshot are.
const snapshotPayload = 64 << 10

// create begins a log.
func (s *Store) create() error {
	file, end, number, err := s.snapshot(1)
	if err != nil {
		return err
	}
	if err := s.adopt(); err != nil {
		_ = file.Close()
		return err
	}
	s.file, s.end, s.number, s.generation = file, end, number, 1
	return nil
}

// Compact rewrites the log: what is live, in a new file that takes the old one's name when it is
// durable, so that there is a whole log at any time. On an error the old one is in use, and the
// error is a *FullError or a *WriteError; or the store has failed (a *FailedError), when it is not
// known which of the two is in use.
func (s *Store) Compact() error {
	if s.failed != nil {
		return s.failed
	}
	file, end, number, err := s.snapshot(s.generation + 1)
	if err != nil {
		return err
	}
	if err := s.adopt(); err != nil {
		_ = file.Close()
		return err
	}
	_ = s.file.Close() // the old one, whose name is gone
	s.file, s.end, s.number, s.records = file, end, number, uint64(s.table.Pieces())
	s.generation++
	s.compacts++
	return nil
}

// adopt gives the new file the log's name, durably.
func (s *Store) adopt() error {
	if err := s.fsys.Rename(s.name+suffix, s.name); err != nil {
		if full(err) {
			_ = s.fsys.Remove(s.name + suffix)
			return unwritten(s.path, err)
		}
		return s.fail(err)
	}
	if err := s.fsys.SyncFolder(); err != nil {
		return s.fail(err)
	}
	return nil
}

// snapshot writes the table to a new file, durably, and tells its length and number of frames. When
// it fails nothing is left of it.
func (s *Store) snapshot(generation uint64) (File, int64, uint64, error) {
	file, err := s.fsys.Create(s.name + suffix)
	if err != nil {
		return nil, 0, 0, unwritten(s.path, err)
	}
	w := &snapshotWriter{file: file, generation: generation, end: headerSize}
	err = s.table.Snapshot(w.record)
	if err == nil {
		err = w.flush()
	}
	if err == nil {
		last, now := s.table.Last()
		// Receipts that were given and not used are not given again.
		h := header{Version, s.table.Home(), generation, max(last, s.table.Issued()), now, w.frames}
		err = writeAll(file, h.encode(), 0)
	}
	if err == nil {
		err = file.Sync()
	}
	if err != nil {
		_ = file.Close()
		_ = s.fsys.Remove(s.name + suffix)
		return nil, 0, 0, unwritten(s.path, err)
	}
	return file, w.end, w.frames, nil
}

// snapshotWriter writes records in frames.
type snapshotWriter struct {
	file       File
	generation uint64
	end        int64
	frames     uint64
	b          []byte
}

func (w *snapshotWriter) record(r twochoice.Record) error {
	if len(w.b) == 0 {
		w.b = beginFrame(w.b)
	}
	w.b = appendRecord(w.b, &r)
	if len(w.b) < snapshotPayload {
		return nil
	}
	return w.flush()
}

func (w *snapshotWriter) flush() error {
	if len(w.b) == 0 {
		return nil
	}
	w.frames++
	w.b = endFrame(w.b, 0, w.generation, w.frames, snapshotFrame)
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

// mayCompact rewrites a log that has grown beyond its bounds. That the change before is durable does
// not depend on it: an error is kept for Stats, and it is tried again when the log has grown by a
// quarter.
func (s *Store) mayCompact() {
	above := s.o.CompactAbove
	if above == 0 {
		above = 1 << 20
	}
	if above < 0 || s.end <= max(above, s.retry) {
		return
	}
	// The pieces that are live take about what the records of the file do.
	each := float64(s.end-headerSize) / float64(max(s.records, 1))
	if live := float64(float64(s.table.Pieces())*each) + headerSize; float64(s.end) <= 2*live {
		return
	}
	s.compact, s.retry = s.Compact(), 0
	if s.compact != nil {
		s.retry = s.end + s.end/4
	}
}
