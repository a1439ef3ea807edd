package faults

import (
	"time"

	"hotbed/dataplane/sim"
	"hotbed/dataplane/twochoice"
)

// plan holds the choices of a seed: the size of the world and the rates of its faults.
type plan struct {
	nodes, clients, objects, copies int
	size                            int64 // of an object
	operations                      int   // per client
	parallel                        int64 // concurrent operations per client
	reads                           float64
	batch                           int
	policy                          twochoice.Policy
	choices                         twochoice.Choices
	idleOps                         int
	compactAbove                    int

	lost, doubled float64 // shares of messages
	delay         time.Duration
	straggling    float64 // share of messages that take much longer
	patience      time.Duration
	think         time.Duration
	impatient     float64       // share of operations given up by their callers if they take long
	orphans       time.Duration // fragment age after which stores ask if it is needed

	crashes, clientCrashes, fulls, slows, sicks, cuts, pauses, skews, damages float64 // per second
}

// chance returns one of the values at random.
func chance[T any](r *sim.Stream, values ...T) T { return values[r.IntN(int64(len(values)))] }

func makePlan(seed uint64) plan {
	r := sim.NewStream(seed, "plan")
	p := plan{
		nodes: 2 + int(r.IntN(4)), clients: 1 + int(r.IntN(4)), objects: 1 + int(r.IntN(3)),
		copies: chance(r, 1, 1, 1, 2), size: chance[int64](r, 16, 64, 256), operations: 12 + int(r.IntN(24)),
		parallel: 1 + r.IntN(4), reads: chance(r, 0.2, 0.5), batch: chance(r, 1, 4),
		policy:  chance(r, twochoice.Policies[:len(twochoice.Policies)-1]...), // a store cannot use the oracle
		choices: chance(r, twochoice.HomeRandom, twochoice.RandomRandom), idleOps: chance(r, 0, 100, 100),
		compactAbove: chance(r, 0, 4, 20), lost: chance(r, 0, 0.02, 0.2), doubled: chance(r, 0, 0.1, 0.3),
		delay: chance(r, 100*time.Microsecond, time.Millisecond), straggling: chance(r, 0, 0.05, 0.2),
		patience: chance(r, 10*time.Millisecond, 40*time.Millisecond),
		think:    chance(r, time.Duration(0), 2*time.Millisecond, 20*time.Millisecond),
		orphans:  chance(r, 5*time.Millisecond, 30*time.Millisecond, 300*time.Millisecond),
	}
	if r.IntN(8) > 0 { // one in eight has no crashes
		p.crashes, p.clientCrashes = chance(r, 0.0, 2, 10, 40), chance(r, 0.0, 0, 5)
	}
	p.fulls, p.slows, p.sicks = chance(r, 0.0, 0, 5, 40), chance(r, 0.0, 5), chance(r, 0.0, 0, 2)
	p.cuts, p.pauses, p.skews = chance(r, 0.0, 0, 5), chance(r, 0.0, 10), chance(r, 0.0, 0, 10)
	p.damages = chance(r, 0.0, 20, 20, 60) // of sectors
	p.impatient = chance(r, 0.0, 0, 0.3)
	return p
}
