package nfssim

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"hotbed/dataplane/enforcer"
	"hotbed/dataplane/estimator"
	"hotbed/dataplane/service"
	"hotbed/dataplane/sim"
)

// device is a storage device behind its enforcer. The enforcer's charges and the device's times use
// two profiles. They may be the same (the paper's estimator is right) or not (section 6.5).
type device struct {
	*queue
	spec    Device
	charged *estimator.Profile
	real    *estimator.Profile // nil with a disk
	shared  *estimator.Estimator
	disk    *service.Model
	at      int64 // head of the disk
	heads   map[*client]int64
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
		random: sim.NewStream(seed, "device "+spec.Name)}
	if spec.Service.Disk != nil {
		m := service.Model{PositioningMean: sim.Seconds(spec.Service.Disk.Positioning),
			Bandwidth: spec.Service.Disk.Bandwidth, Size: spec.Service.Disk.Size}
		if err := m.Validate(); err != nil {
			return nil, err
		}
		d.disk, d.heads = &m, map[*client]int64{}
	} else {
		d.real = profiles[spec.Service.Profile]
		d.same = spec.Service.Estimate == spec.Charged &&
			(spec.Service.Positioning == PerStream || !d.real.NeedsOffsets())
		if spec.Service.Positioning == PerDevice {
			d.shared = d.real.Estimator()
		}
	}
	if d.noise, err = sim.NewLogNormal(spec.Service.Noise); err != nil {
		return nil, err
	}
	d.seconds = d.takes
	return d, nil
}

// needsOffsets returns true if requests must have offsets.
func (d *device) needsOffsets() bool {
	return d.charged.NeedsOffsets() || d.real != nil && d.real.NeedsOffsets()
}

// charge sets the cost that the enforcer charges, in the order of a workload's requests. It also
// sets the device's time if that time depends only on the workload's own stream.
func (d *device) charge(r *request) {
	c := r.client
	r.Cost = c.charge.Work(r.read, r.offset, r.size) / d.spec.Charged.Speed
	if d.same {
		r.real = r.Cost
	} else if d.shared == nil && d.disk == nil {
		r.real = c.real.Work(r.read, r.offset, r.size) / d.spec.Service.Speed
	}
}

// takes returns the service time (s) of the request that is served next.
func (d *device) takes(q *enforcer.Request) float64 {
	r := q.Data.(*request)
	switch {
	case d.same:
	case d.shared != nil:
		r.real = d.shared.Work(r.read, r.offset, r.size) / d.spec.Service.Speed
	case d.disk != nil:
		r.real = d.onDisk(r).Seconds() / d.spec.Service.Speed
	}
	if d.spec.Service.Noise > 0 {
		return float64(r.real * d.noise.Factor(d.random))
	}
	return r.real
}

// onDisk returns the service time on the disk of package service. A trace's offset is wrapped into
// the disk; a request without an offset gets a random one.
func (d *device) onDisk(r *request) time.Duration {
	n := min(r.size, d.disk.Size)
	var to int64
	if r.offset >= 0 {
		to = r.offset % max(d.disk.Size-n, 1)
	} else {
		to = d.random.IntN(max(d.disk.Size-n, 1))
	}
	from := d.at
	if d.spec.Service.Positioning == PerStream {
		from = d.heads[r.client]
		d.heads[r.client] = to + n
	}
	d.at = to + n
	return d.disk.Service(from, to, n)
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
