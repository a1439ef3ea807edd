package redirectlog

import (
	"encoding/binary"
	"errors"
	"time"

	"hotbed/dataplane/twochoice"
)

// Options configures a store.
type Options struct {
	// CompactAbove: Commit rewrites the file if larger than this many bytes and than twice the
	// estimated rewritten size. 0 means 1 MiB; negative: only Compact rewrites it.
	CompactAbove int64
	// MustExist refuses to create a missing log (*MissingError).
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

// Store is a table with its journal: a change is durable before it is applied. Not safe for
// concurrent use.
type Store struct {
	journal *Journal
	table   *twochoice.Table
	o       Options

	retry    int64 // minimum size to retry a failed rewrite
	rewrites uint64
	rewrite  error // error of Commit's last rewrite
}

// Stats counts what a store did.
type Stats struct {
	Size       int64  // of the file, bytes
	Generation uint64 // number of rewrites of the log
	Rewrites   uint64 // since opening
	// RewriteError is the error of Commit's last rewrite; the log continues without the rewrite.
	RewriteError error
}

// Open reads a log and rebuilds its table, or creates an empty log if none exists. Torn tails and
// defects are handled as in OpenJournal. A record that the table cannot hold (of an unknown OSD,
// beyond the object) is a *RecordError that wraps the table's error.
func Open(fsys FS, name string, home twochoice.Server, servers *twochoice.Servers, size uint64,
	o Options) (*Store, Recovery, error) {
	table, err := twochoice.NewTable(home, servers, size)
	if err != nil {
		return nil, Recovery{}, err
	}
	s := &Store{table: table, o: o}
	journal, recovery, err := OpenJournal(fsys, name, home, o.MustExist, nil, s.take)
	if err != nil {
		return nil, Recovery{}, err
	}
	s.journal = journal
	return s, recovery, nil
}

// take applies an entry that was read.
func (s *Store) take(e Entry) error {
	if e.Record.Kind != 0 {
		_, err := s.table.Apply(e.Record, nil)
		return err
	}
	last, n := binary.Uvarint(e.Note)
	if n <= 0 {
		return errNote
	}
	now, m := binary.Varint(e.Note[n:])
	if m <= 0 || n+m != len(e.Note) {
		return errNote
	}
	s.table.Resume(twochoice.Receipt(last), time.Duration(now))
	return nil
}

var errNote = errors.New("a note has a form that a table's log does not have")

// Stats returns the counts so far.
func (s *Store) Stats() Stats {
	return Stats{s.journal.end, s.journal.generation, s.rewrites, s.rewrite}
}

// Table returns the table for queries; changes must go through the store.
func (s *Store) Table() *twochoice.Table { return s.table }

// Failed returns the reason (a *FailedError) why nothing can be changed until the store is
// reopened, or nil. It is set if a change may or may not be durable: the table is unchanged, but
// the change may appear after a restart. A server with a failed store must answer no write and must
// restart. That includes home writes without a record, because the change might shadow them later.
func (s *Store) Failed() error { return s.journal.failed }

// Commit makes changes durable, all of them or none, and then applies them in order. It returns
// their records, and the dead entries, so that their fragments can be removed. On an error the
// table is unchanged: a *FullError, a *WriteError, a *FailedError (see Failed), or an invalid
// change.
func (s *Store) Commit(now time.Duration, changes []Change) ([]twochoice.Record, []twochoice.Entry,
	error) {
	if s.journal.failed != nil {
		return nil, nil, s.journal.failed
	}
	if len(changes) == 0 {
		return nil, nil, nil
	}
	records, entries := make([]twochoice.Record, len(changes)), make([]Entry, len(changes))
	for i, c := range changes {
		r, err := s.prepare(now, c)
		if err != nil {
			return nil, nil, err
		}
		records[i], entries[i].Record = r, r
	}
	if err := s.journal.Append(entries); err != nil {
		return nil, nil, err
	}
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

// Compact rewrites the log with the live entries. Its errors are those of Journal.Replace.
func (s *Store) Compact() error {
	if s.journal.failed != nil {
		return s.journal.failed
	}
	err := s.journal.replace(func(write func(*Entry)) error {
		if err := s.table.Snapshot(func(r twochoice.Record) error {
			write(&Entry{Record: r})
			return nil
		}); err != nil {
			return err
		}
		// Receipts must not be reused, even if nothing of them is left.
		_, now := s.table.Last()
		note := binary.AppendVarint(binary.AppendUvarint(nil, uint64(s.table.Issued())), int64(now))
		write(&Entry{Note: note})
		return nil
	})
	if err == nil {
		s.rewrites++
	}
	return err
}

// mayCompact rewrites a log that exceeds its limits. An error does not affect the previous durable
// change. Stats reports the error, and the rewrite is retried when the log has grown by a quarter.
func (s *Store) mayCompact() {
	above, end := s.o.CompactAbove, s.journal.end
	if above == 0 {
		above = 1 << 20
	}
	if above < 0 || end <= max(above, s.retry) {
		return
	}
	// Live pieces need about as much space as the file's entries.
	each := float64(end-headerSize) / float64(max(s.journal.entries, 1))
	if live := float64(float64(s.table.Pieces())*each) + headerSize; float64(end) <= 2*live {
		return
	}
	s.rewrite, s.retry = s.Compact(), 0
	if s.rewrite != nil {
		s.retry = end + end/4
	}
}

// Close closes the log.
func (s *Store) Close() error { return s.journal.Close() }
