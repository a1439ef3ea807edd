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

// Keeper keeps fragments and bases: a Store, or one that is not on files.
type Keeper interface {
	Do(op protocol.DiskOp) protocol.DiskDone
}

// Disk is all that an agent has on its disk: its store and its redirect log.
type Disk struct {
	store   Keeper
	journal *redirectlog.Journal
}

// Found is what is on a disk when an agent starts.
type Found struct {
	Fragments []protocol.Fragment
	Records   []protocol.Record
	Recovery  redirectlog.Recovery
}

// OpenDisk opens a node's folder, or begins one.
func OpenDisk(fsys FS, node protocol.Node) (*Disk, Found, error) {
	store, fragments, err := Open(fsys)
	if err != nil {
		return nil, Found{}, err
	}
	return OpenLog(fsys, node, store, fragments, store.begun)
}

// OpenLog opens a node's redirect log beside a store with these fragments. A log is begun only where the
// store has nothing: what an agent has in it is nothing without the log that says which bytes count.
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

// Do carries a disk operation out. Those of the log are not to be called two at a time.
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
