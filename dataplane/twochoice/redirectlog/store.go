package redirectlog

import (
	"time"

	"hotbed/dataplane/twochoice"
)

// Options are those of a store.
type Options struct {
	// CompactAbove is the size of the file above which it is rewritten when less than half of it is
	// live; 1 MiB when 0, never when negative.
	CompactAbove int64
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
	table *twochoice.Table
	log   *log
	o     Options
}

// Table is the table, to be queried; changes go through the store.
func (s *Store) Table() *twochoice.Table { return s.table }

// Commit makes changes durable, all of them or none, and then applies them in their order. It returns
// their records and the entries that are dead by them, whose fragments can be removed. On an error
// the table is as before; see Failed.
func (s *Store) Commit(now time.Duration, changes []Change) ([]twochoice.Record, []twochoice.Entry, error) {
	panic("not yet")
}

// Failed is why nothing can be changed any more until the store is opened again; nil while all is
// well. It is set when the disk left open whether a change is durable: the table is as before, but
// after a restart that change may be there. A server whose store has failed must answer no write at
// all, not even one that needs no record, and has to start again.
func (s *Store) Failed() error { panic("not yet") }

// Compact rewrites the log with what is live. On an error the old one is in use, unless Failed.
func (s *Store) Compact() error { panic("not yet") }

// Close marks the log as closed and closes it.
func (s *Store) Close() error { panic("not yet") }

// Open reads a log and makes its table again, or makes an empty one when there is none. A torn tail
// (what a crash left of the last change, which was not acknowledged) is cut off. Anything else that
// is wrong is refused, and the file left as it is: *CorruptError, *VersionError, *OwnerError, and
// errors of the table's for records that it cannot hold (an unknown OSD, a range beyond the object),
// which say where they are.
func Open(fsys FS, name string, home twochoice.Server, servers *twochoice.Servers, size uint64,
	o Options) (*Store, Recovery, error) {
	panic("not yet")
}

type log struct{}
