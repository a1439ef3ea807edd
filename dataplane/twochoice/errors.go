package twochoice

import (
	"fmt"
	"time"
)

// UnknownServerError reports a server (OSD) that the cluster does not have.
type UnknownServerError struct {
	Server  Server
	Servers int // number of servers in the cluster
}

func (e *UnknownServerError) Error() string {
	return fmt.Sprintf("OSD %d is not one of the cluster's %d; name one of the OSDs that the cluster "+
		"map lists", e.Server, e.Servers)
}

// TwiceError reports a server that was named twice.
type TwiceError struct{ Server Server }

func (e *TwiceError) Error() string {
	return fmt.Sprintf("OSD %d is there twice; name each OSD once", e.Server)
}

// RangeError reports a range that is empty, runs backwards or exceeds its object.
type RangeError struct {
	Object Object
	Range  Range
	Size   uint64 // maximum size of the object in bytes
}

func (e *RangeError) Error() string {
	if e.Range.Start >= e.Range.End {
		return fmt.Sprintf("range [%d, %d) of object %q holds no byte; its end must be above its start",
			e.Range.Start, e.Range.End, e.Object)
	}
	return fmt.Sprintf("range [%d, %d) goes beyond object %q, which has at most %d bytes",
		e.Range.Start, e.Range.End, e.Object, e.Size)
}

// ClockError reports a clock that went back.
type ClockError struct{ Now, Last time.Duration }

func (e *ClockError) Error() string {
	return fmt.Sprintf("the clock went back by %v (from %v to %v); nothing was changed: set the clock "+
		"right, or wait until it has caught up", e.Last-e.Now, e.Last, e.Now)
}

// ReceiptError reports a record that cannot follow the table's contents: a past record that is not
// a maintainer's, or a return as of a receipt that was not yet given.
type ReceiptError struct {
	Receipt Receipt // the record's
	Last    Receipt // the table's
	Why     string
}

func (e *ReceiptError) Error() string {
	return fmt.Sprintf("receipt %d does not follow receipt %d: %s", e.Receipt, e.Last, e.Why)
}

// NameError reports an object name that cannot be recorded.
type NameError struct{ Length int }

func (e *NameError) Error() string {
	return fmt.Sprintf("an object's name has %d bytes; allowed are 1 to %d", e.Length, MaxName)
}

// ParameterError reports a parameter value that is not allowed.
type ParameterError struct{ Name, Value, Allowed string }

func (e *ParameterError) Error() string {
	return fmt.Sprintf("%s is %s; allowed is %s", e.Name, e.Value, e.Allowed)
}
