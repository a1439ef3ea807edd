// Package replay sends the requests of a trace to an NFS server, at the trace's times or one after
// another, and reports their latencies (section 5.1 of PriorityMeister).
package replay

import "hotbed/dataplane/internal/traces"

type (
	// Request is a request of a trace.
	Request = traces.Request
	// Trace is the source of requests.
	Trace = traces.Trace
	// TraceReport describes the malformed rows of a trace's file.
	TraceReport = traces.Report
)

const unknownOffset = traces.UnknownOffset

// Listed returns a trace of ordered requests.
func Listed(requests []Request) Trace { return traces.Listed(requests) }

// OpenTrace is traces.Open.
func OpenTrace(path string, strict bool) (Trace, error) { return traces.Open(path, strict) }
