package faults

import (
	"fmt"
	"time"

	"hotbed/dataplane/twochoice/protocol"
)

// Result is what a run was.
type Result struct {
	Seed uint64
	Totals
	// Err is the first violation, nil if the promise was kept.
	Err error
}

// Totals count what happened in one run or many.
type Totals struct {
	Reads         int           `json:"reads_compared"`
	Acked         int           `json:"acknowledged_writes"`
	Crashes       int           `json:"node_crashes"`
	ClientCrashes int           `json:"client_crashes"`
	GivenUp       int           `json:"operations_given_up"`
	Redirected    int           `json:"redirected_writes"`
	Returned      int           `json:"returned_ranges"`
	Fenced        int           `json:"fences"`
	Messages      int           `json:"messages"`
	Lost          int           `json:"lost_messages"`
	Doubled       int           `json:"doubled_messages"`
	Torn          int           `json:"torn_logs"`
	Fulls         int           `json:"full_disks"`
	Sicks         int           `json:"failed_syncs"`
	Compactions   int           `json:"compactions"`
	Rotten        int           `json:"spoilt_fragments"`
	Unreadable    int           `json:"unreadable_fragments"`
	Missing       int           `json:"missing_fragments"`
	Events        uint64        `json:"events"`
	Virtual       time.Duration `json:"virtual_ns"`
}

// Add adds what another run did.
func (t *Totals) Add(r Result) {
	t.Reads += r.Reads
	t.Acked += r.Acked
	t.Crashes += r.Crashes
	t.ClientCrashes += r.ClientCrashes
	t.GivenUp += r.GivenUp
	t.Redirected += r.Redirected
	t.Returned += r.Returned
	t.Fenced += r.Fenced
	t.Messages += r.Messages
	t.Lost += r.Lost
	t.Doubled += r.Doubled
	t.Torn += r.Torn
	t.Fulls += r.Fulls
	t.Sicks += r.Sicks
	t.Compactions += r.Compactions
	t.Rotten += r.Rotten
	t.Unreadable += r.Unreadable
	t.Missing += r.Missing
	t.Events += r.Events
	t.Virtual += r.Virtual
}

// Replay is the command that runs a seed on files again.
func Replay(seed uint64, b protocol.Break) string { return ReplayOn(Files, seed, b) }

// ReplayOn is the command that runs a seed on a backend again.
func ReplayOn(backend Backend, seed uint64, b protocol.Break) string {
	command := fmt.Sprintf("go run ./cmd/twochoicefaults --seed %d --trace", seed)
	if backend != Files {
		command += fmt.Sprintf(" --backend %v", backend)
	}
	if b != protocol.Sound {
		command += fmt.Sprintf(" --break %v", b)
	}
	return "cd dataplane && " + command
}
