package redirectlog

import (
	"errors"
	"fmt"
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
