package redirectlog

import (
	"errors"
	"fmt"
	"syscall"

	"hotbed/dataplane/twochoice"
)

// CorruptError tells of a log that is damaged elsewhere than a crash can have torn it. It is not
// opened: what it cannot tell may be where acknowledged data is.
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

// RecordError tells of a record that is whole, but cannot be of this table: it names an unknown OSD,
// goes beyond its object, or does not follow the one before it.
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

// VersionError tells of a log that another version wrote.
type VersionError struct {
	File         string
	Found, Known uint32
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("the redirect log %s is of version %d, and this program knows version %d; it was "+
		"left as it is: start the agent that wrote it", e.File, e.Found, e.Known)
}

// OwnerError tells of a log that is another server's.
type OwnerError struct {
	File         string
	Owner, Asked twochoice.Server
}

func (e *OwnerError) Error() string {
	return fmt.Sprintf("the redirect log %s is of OSD %d, not of OSD %d; it was left as it is: give each "+
		"agent the folder of its own OSD", e.File, e.Owner, e.Asked)
}

// MissingError tells of a log that is not there though it should be.
type MissingError struct{ File string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("the redirect log %s is not there though this OSD had one; restore it from a "+
		"copy, or move the data beside it away too if all of that may be lost", e.File)
}

// FullError tells of a full disk. The table is as before, and works again when there is room.
type FullError struct {
	File string
	Err  error
}

func (e *FullError) Error() string {
	return fmt.Sprintf("the redirect log %s cannot grow: %v; nothing was changed: make room on its disk",
		e.File, e.Err)
}

func (e *FullError) Unwrap() error { return e.Err }

// WriteError tells of a change that could not be written and surely is not in the log. The table is
// as before, and the log can be used.
type WriteError struct {
	File string
	Err  error
}

func (e *WriteError) Error() string {
	return fmt.Sprintf("the redirect log %s cannot be written: %v; nothing was changed", e.File, e.Err)
}

func (e *WriteError) Unwrap() error { return e.Err }

// FailedError tells that nothing can be changed any more: see Store.Failed.
type FailedError struct {
	File string
	Err  error
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("the redirect log %s failed: %v; what the disk holds of the last change is not "+
		"known: see to the disk and start the agent again", e.File, e.Err)
}

func (e *FailedError) Unwrap() error { return e.Err }

// full says whether an error is a full disk or an exhausted quota.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// unwritten is the error for what is surely not in the log.
func unwritten(file string, err error) error {
	if full(err) {
		return &FullError{file, err}
	}
	return &WriteError{file, err}
}
