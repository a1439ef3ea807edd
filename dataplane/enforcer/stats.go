package enforcer

import "time"

// WorkloadStats counts what a workload's requests did since the workload came.
type WorkloadStats struct {
	Queued       int           // waiting now
	Outstanding  int           // dispatched and not done
	Arrived      uint64        // came
	Dispatched   uint64        // were dispatched
	Done         uint64        // were served
	Removed      uint64        // were taken back
	OutOfProfile uint64        // pm: were dispatched without tokens
	Held         uint64        // pm: did not find room in all buckets when they came
	Work         float64       // cost of those dispatched, seconds of the device
	Waited       time.Duration // from arrival to dispatch, all those dispatched together
	Weight       float64       // ps, cake, mclock: in force now
}

// Stats are the counts of the workloads, in the order of the parameters.
func (e *Enforcer) Stats() []WorkloadStats {
	out := make([]WorkloadStats, 0, len(e.parameters.Workloads))
	for _, f := range e.flows[:len(e.parameters.Workloads)] {
		s := f.stats
		s.Weight = f.spec.Weight
		if family[e.parameters.Policy] == family[PS] {
			s.Weight = f.share.weight
		}
		out = append(out, s)
	}
	return out
}
