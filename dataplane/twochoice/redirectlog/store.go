package redirectlog

import (
	"fmt"
	"time"

	"hotbed/dataplane/twochoice"
)

// Options are those of a store.
type Options struct {
	// CompactAbove: the file is rewritten by Commit when it is larger than this many bytes and than
	// twice what a rewritten one would be. 0 stands for 1 MiB; negative: only Compact rewrites it.
	CompactAbove int64
	// MustExist refuses to begin a new log where there is none (*MissingError).
	MustExist bool
}

// Change is a change of a table, before it has a receipt.
type Change struct {
	Kind     twochoice.Kind // Redirected, Home or Returned
	Object   twochoice.Object
	Range    twochoice.Range
	Location twochoice.Location // Redirected
	AsOf     twochoice.Receipt  // Returned
}

// Recovery tells what was found when a store was opened.
type Recovery struct {
	Created   bool  // there was no file
	Records   int   // that were read
	Size      int64 // of the file, bytes
	TornAt    int64 // where a torn tail was cut off; 0 when there was none
	TornBytes int64 // how long it was
	Clean     bool  // the store had been closed
	Leftover  bool  // an unfinished rewrite was removed
}

// Store is a table with its log: a change is durable before it is made. Not safe for concurrent use.
type Store struct {
	fsys       FS
	name, path string
	file       File
	table      *twochoice.Table
	o          Options

	generation uint64
	number     uint64 // of the last frame
	end        int64  // of the file
	records    uint64 // that were ever written to it, with their bytes
	buffer     []byte
	failed     error

	retry    int64 // size from which a rewrite that failed is tried again
	compacts uint64
	compact  error // why the last rewrite by Commit failed
}

// Stats counts what a store did.
type Stats struct {
	Size       int64  // of the file, bytes
	Generation uint64 // counts rewrites of the log
	Rewrites   uint64 // since it was opened
	// RewriteError is why the last rewrite by Commit failed; the log goes on without it.
	RewriteError error
}

// Stats are the counts so far.
func (s *Store) Stats() Stats { return Stats{s.end, s.generation, s.compacts, s.compact} }

// Table is the table, to be queried; changes go through the store.
func (s *Store) Table() *twochoice.Table { return s.table }

// Failed is why nothing can be changed any more until the store is opened again (a *FailedError);
// nil while all is well. It is set when the disk left open whether a change is durable: the table is
// as before, but after a restart that change may be there. A server whose store has failed must
// answer no write at all, not even one at home that needs no record (the change might shadow it
// later), and has to start again.
func (s *Store) Failed() error { return s.failed }

// Commit makes changes durable, all of them or none, and then applies them in their order. It returns
// their records, and the entries that are dead by them, whose fragments can be removed. On an error
// the table is as before: a *FullError, a *WriteError, a *FailedError (see Failed), or what is wrong
// with a change.
func (s *Store) Commit(now time.Duration, changes []Change) ([]twochoice.Record, []twochoice.Entry,
	error) {
	if s.failed != nil {
		return nil, nil, s.failed
	}
	records := make([]twochoice.Record, len(changes))
	b := beginFrame(s.buffer[:0])
	for i, c := range changes {
		r, err := s.prepare(now, c)
		if err != nil {
			return nil, nil, err
		}
		records[i] = r
		b = appendRecord(b, &r)
	}
	s.buffer = b[:0]
	if len(b)-frameHeader > maxPayload {
		return nil, nil, &twochoice.ParameterError{Name: "the size of a commit",
			Value: fmt.Sprintf("%d bytes", len(b)-frameHeader), Allowed: "1 MiB; commit fewer changes at a time"}
	}
	if len(records) == 0 {
		return nil, nil, nil
	}
	if err := s.write(endFrame(b, 0, s.generation, s.number+1, changesFrame)); err != nil {
		return nil, nil, err
	}
	s.records += uint64(len(records))
	var dead []twochoice.Entry
	for _, r := range records {
		var err error
		if dead, err = s.table.Apply(r, dead); err != nil {
			panic("redirectlog: a record that was prepared cannot be applied: " + err.Error())
		}
	}
	s.mayCompact()
	return records, dead, nil
}

func (s *Store) prepare(now time.Duration, c Change) (twochoice.Record, error) {
	switch c.Kind {
	case twochoice.Redirected:
		return s.table.Redirect(now, c.Object, c.Range, c.Location)
	case twochoice.Home:
		return s.table.WriteHome(now, c.Object, c.Range)
	case twochoice.Returned:
		return s.table.Return(now, c.Object, c.Range, c.AsOf)
	}
	return twochoice.Record{}, &twochoice.ParameterError{Name: "a change's kind", Value: c.Kind.String(),
		Allowed: "redirected, home or returned"}
}

// write appends a frame, durably. When it fails, the frame is surely not in the file, or the store
// has failed.
func (s *Store) write(frame []byte) error {
	n, err := s.file.WriteAt(frame, s.end)
	if err == nil && n < len(frame) {
		err = fmt.Errorf("only %d of %d bytes were written", n, len(frame))
	}
	if err == nil {
		if err = s.file.Sync(); err == nil {
			s.end += int64(len(frame))
			s.number++
			return nil
		}
		if !full(err) {
			// What is durable now is unknown, and asking again would not tell: the system may have
			// dropped what it could not write.
			return s.fail(err)
		}
	}
	if cut := s.cut(s.end); cut != nil {
		return s.fail(fmt.Errorf("%w, and then what was written of it could not be cut off: %w", err, cut))
	}
	return unwritten(s.path, err)
}

func (s *Store) fail(err error) error {
	s.failed = &FailedError{s.path, err}
	return s.failed
}

// Mark ends the log by a frame without records: when a store has been idle for a while, what the disk
// spoils later is never taken for a torn tail.
func (s *Store) Mark() error {
	if s.failed != nil {
		return s.failed
	}
	return s.write(endFrame(beginFrame(s.buffer[:0]), 0, s.generation, s.number+1, closedFrame))
}

// Close marks the log's end and closes it. A store that has failed is closed without a mark.
func (s *Store) Close() error {
	var marked error
	if s.failed == nil {
		marked = s.Mark()
	}
	s.failed = &FailedError{s.path, fmt.Errorf("it is closed")}
	if err := s.file.Close(); err != nil {
		return err
	}
	if marked != nil && !full(marked) {
		return marked
	}
	return nil
}
