package nfssim

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"hotbed/dataplane/enforcer"
	"hotbed/dataplane/estimator"
	"hotbed/dataplane/sim"
)

// device is a storage device behind its enforcer. The enforcer's charges and the device's times use
// two profiles. They may be the same (the paper's estimator is right) or not (section 6.5).
type device struct {
	*queue
	spec    Device
	charged *estimator.Profile
	real    *estimator.Profile
	same    bool // charges equal the device's times
	noise   sim.LogNormal
	random  *sim.Stream
}

func newDevice(spec Device, profiles map[string]*estimator.Profile, seed uint64) (*device, error) {
	q, err := newQueue(spec.Name, spec.Parameters)
	if err != nil {
		return nil, err
	}
	d := &device{queue: q, spec: spec, charged: profiles[spec.Charged.Profile],
		real: profiles[spec.Service.Profile], same: spec.Service.Estimate == spec.Charged,
		random: sim.NewStream(seed, "device "+spec.Name)}
	if d.noise, err = sim.NewLogNormal(spec.Service.Noise); err != nil {
		return nil, err
	}
	d.seconds = d.takes
	return d, nil
}

// needsOffsets returns true if requests must have offsets.
func (d *device) needsOffsets() bool {
	return d.charged.NeedsOffsets() || d.real.NeedsOffsets()
}

// charge sets the cost that the enforcer charges and the device's time, in the order of a workload's
// requests.
func (d *device) charge(r *request) {
	c := r.client
	r.Cost = c.charge.Work(r.read, r.offset, r.size) / d.spec.Charged.Speed
	if d.same {
		r.real = r.Cost
	} else {
		r.real = c.real.Work(r.read, r.offset, r.size) / d.spec.Service.Speed
	}
}

// takes returns the service time (s) of the request that is served next.
func (d *device) takes(q *enforcer.Request) float64 {
	r := q.Data.(*request)
	if d.spec.Service.Noise > 0 {
		return float64(r.real * d.noise.Factor(d.random))
	}
	return r.real
}

// parseProfiles parses the profiles of a scenario.
func parseProfiles(texts map[string]json.RawMessage) (map[string]*estimator.Profile, error) {
	found := map[string]*estimator.Profile{}
	for name, text := range texts {
		p, err := estimator.Parse(text, fmt.Sprintf("profile %q", name))
		if err != nil {
			return nil, err
		}
		found[name] = p
	}
	return found, nil
}

// nanoseconds converts seconds to a duration.
func nanoseconds(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }
