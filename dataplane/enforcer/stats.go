package enforcer

import "time"

// WorkloadStats counts a workload's requests since the workload was added.
type WorkloadStats struct {
	Queued       int           // waiting now
	Outstanding  int           // dispatched and not done
	Arrived      uint64        // came
	Dispatched   uint64        // were dispatched
	Done         uint64        // served
	Removed      uint64        // removed
	OutOfProfile uint64        // pm: dispatched without tokens
	Held         uint64        // pm: did not fit into all buckets on arrival
	Work         float64       // total cost of dispatched requests, seconds of the device
	Waited       time.Duration // from arrival to dispatch, sum over dispatched requests
	Weight       float64       // ps, cake, mclock: current weight
}

// Stats returns the counts of the workloads, in the order of the parameters.
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
