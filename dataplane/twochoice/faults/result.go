package faults

import (
	"fmt"
	"reflect"
	"time"

	"hotbed/dataplane/twochoice/protocol"
)

// Result is the outcome of a run.
type Result struct {
	Seed uint64
	Totals
	// Err is the first violation, nil if the promise was kept.
	Err error
}

// Totals counts the events of one run or many.
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
	Flipped       int           `json:"flipped_sectors"`
	Zeroed        int           `json:"zeroed_sectors"`
	Dropped       int           `json:"dropped_sectors"`
	Misdirected   int           `json:"misdirected_sectors"`
	Unreadable    int           `json:"unreadable_sectors"`
	OfLogs        int           `json:"damaged_sectors_of_logs"`
	OfBases       int           `json:"damaged_sectors_of_bases"`
	OfFragments   int           `json:"damaged_sectors_of_fragments"`
	Repaired      int           `json:"repaired_blocks_of_logs"`
	Missing       int           `json:"missing_fragments"`
	Named         int           `json:"named_errors"`
	Events        uint64        `json:"events"`
	Virtual       time.Duration `json:"virtual_ns"`
}

// Add adds the counts of another run.
func (t *Totals) Add(r Result) {
	sum, more := reflect.ValueOf(t).Elem(), reflect.ValueOf(r.Totals)
	for i := range sum.NumField() {
		if f := sum.Field(i); f.CanUint() {
			f.SetUint(f.Uint() + more.Field(i).Uint())
		} else {
			f.SetInt(f.Int() + more.Field(i).Int())
		}
	}
}

// damaged counts a damaged sector.
func (t *Totals) damaged(kind damage, name string) {
	*[damages]*int{&t.Flipped, &t.Zeroed, &t.Dropped, &t.Misdirected, &t.Unreadable}[kind]++
	switch name[0] {
	case 'b':
		t.OfBases++
	case 'f':
		t.OfFragments++
	default:
		t.OfLogs++
	}
}

// Replay returns the command that reruns a seed on files.
func Replay(seed uint64, b protocol.Break) string { return ReplayOn(Files, seed, b) }

// ReplayOn returns the command that reruns a seed on a backend.
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
