// Package replay sends the requests of a trace to an NFS server at the trace's own times, or one
// after the other, and tells how long they took (section 5.1 of PriorityMeister).
package replay

import "hotbed/dataplane/internal/traces"

type (
	// Request is a request of a trace.
	Request = traces.Request
	// Trace is where requests come from.
	Trace = traces.Trace
	// TraceReport tells what of a trace's file was no request.
	TraceReport = traces.Report
)

const unknownOffset = traces.UnknownOffset

// Listed is a trace of requests that are in order.
func Listed(requests []Request) Trace { return traces.Listed(requests) }

// OpenTrace is traces.Open.
func OpenTrace(path string, strict bool) (Trace, error) { return traces.Open(path, strict) }
