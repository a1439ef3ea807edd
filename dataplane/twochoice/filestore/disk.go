package filestore

import (
	"errors"
	"fmt"

	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/protocol"
	"hotbed/dataplane/twochoice/redirectlog"
)

// LogName is the name of an agent's redirect log.
const LogName = "redirect.log"

// Keeper stores fragments and bases: a Store, or an implementation without files.
type Keeper interface {
	Do(op protocol.DiskOp) protocol.DiskDone
}

// Disk is the on-disk state of an agent: its store and its redirect log.
type Disk struct {
	store   Keeper
	journal *redirectlog.Journal
}

// Found is the content of a disk when an agent starts.
type Found struct {
	Fragments []protocol.Fragment
	Records   []protocol.Record
	Recovery  redirectlog.Recovery
}

// OpenDisk opens a node's folder, or initializes an empty one.
func OpenDisk(fsys FS, node protocol.Node) (*Disk, Found, error) {
	store, fragments, err := Open(fsys)
	if err != nil {
		return nil, Found{}, err
	}
	return OpenLog(fsys, node, store, fragments, store.begun)
}

// OpenLog opens a node's redirect log next to a store with these fragments. It starts a new log
// only for an empty store: without the log, nobody knows which stored bytes count.
func OpenLog(fsys redirectlog.FS, node protocol.Node, store Keeper, fragments []protocol.Fragment,
	begun bool) (*Disk, Found, error) {
	found := Found{Fragments: fragments}
	take := func(e redirectlog.Entry) error {
		r, err := protocol.RecordOf(e)
		found.Records = append(found.Records, r)
		return err
	}
	journal, recovery, err := redirectlog.OpenJournal(fsys, LogName, twochoice.Server(node), begun,
		entries([]protocol.Record{protocol.CutRecord()}), take)
	if err != nil {
		return nil, found, err
	}
	found.Recovery = recovery
	return &Disk{store, journal}, found, nil
}

// Do carries out a disk operation. Log operations must not run concurrently.
func (d *Disk) Do(op protocol.DiskOp) protocol.DiskDone {
	var err error
	switch op.Kind {
	case protocol.WriteLog:
		err = d.journal.Append(entries(op.Records))
	case protocol.CompactLog:
		err = d.journal.Replace(entries(op.Records))
	default:
		return d.store.Do(op)
	}
	var full *redirectlog.FullError
	var unwritten *redirectlog.WriteError
	if errors.As(err, &full) || errors.As(err, &unwritten) {
		err = fmt.Errorf("%w: %w", protocol.ErrFull, err) // nothing of it is in the log
	}
	return protocol.DiskDone{Op: op.Op, Err: err}
}

func entries(records []protocol.Record) []redirectlog.Entry {
	out := make([]redirectlog.Entry, len(records))
	for i, r := range records {
		out[i] = r.Entry()
	}
	return out
}

// Close closes the log.
func (d *Disk) Close() error { return d.journal.Close() }
