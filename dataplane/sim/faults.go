package sim

import (
	"fmt"
	"math"
	"time"
)

// The possible faults of a model's parts: disks and stations crash and slow down; links are cut,
// delayed and slowed down. A model's own nodes take part if they have the methods.
type (
	// Crasher loses everything in progress, and serves again after a restart.
	Crasher interface {
		Crash(k *Kernel)
		Restart(k *Kernel)
	}
	// Slower accepts a factor of slowdown relative to the healthy part.
	Slower interface{ Slow(factor float64) }
	// Cutter can be partitioned.
	Cutter interface {
		Cut(k *Kernel)
		Heal(k *Kernel)
	}
	// Delayer accepts a delay in addition to its own.
	Delayer interface{ Delay(d time.Duration) }
)

// Fault is a fault of the named part at a given time.
type Fault struct {
	At time.Duration
	// For is the duration; 0 means until the end.
	For    time.Duration
	Kind   string // crash, slow, partition or delay
	Target string
	// Factor is the factor of a slow fault: 2 takes twice the time.
	Factor float64
	// Delay is the delay of a delay fault.
	Delay time.Duration
}

// ScheduleFaults checks all faults, then schedules their begin and end. The error is one sentence
// about the first invalid fault.
func ScheduleFaults(k *Kernel, faults []Fault, targets map[string]any) error {
	type pair struct{ begin, end func(k *Kernel) }
	actions := make([]pair, len(faults))
	for i, f := range faults {
		begin, end, err := f.actions(k.Now(), targets)
		if err != nil {
			return fmt.Errorf("fault %d: %w", i+1, err)
		}
		actions[i] = pair{begin, end}
	}
	run := func(action func(*Kernel)) Func { return func(k *Kernel, _ uint64) { action(k) } }
	for i, f := range faults {
		k.At(f.At, run(actions[i].begin), 0)
		if f.For > 0 {
			k.At(f.At+f.For, run(actions[i].end), 0)
		}
	}
	return nil
}

// actions returns the functions that begin and end a fault.
func (f Fault) actions(now time.Duration, targets map[string]any) (begin, end func(*Kernel), err error) {
	target, known := targets[f.Target]
	switch {
	case !known:
		return nil, nil, fmt.Errorf("there is no %q", f.Target)
	case f.At < now || f.For < 0 || f.For > Forever-f.At:
		return nil, nil, fmt.Errorf("it is at %v for %v, allowed is %v or later and 0 or longer",
			f.At, f.For, now)
	}
	able := false
	switch f.Kind {
	case "crash":
		var t Crasher
		if t, able = target.(Crasher); able {
			begin, end = t.Crash, t.Restart
		}
	case "slow":
		if !(f.Factor > 0) || math.IsInf(f.Factor, 1) {
			return nil, nil, fmt.Errorf("its factor is %g, allowed is more than 0", f.Factor)
		}
		var t Slower
		if t, able = target.(Slower); able {
			begin = func(*Kernel) { t.Slow(f.Factor) }
			end = func(*Kernel) { t.Slow(1) }
		}
	case "partition":
		var t Cutter
		if t, able = target.(Cutter); able {
			begin, end = t.Cut, t.Heal
		}
	case "delay":
		if f.Delay < 0 || f.Delay > time.Hour {
			return nil, nil, fmt.Errorf("its delay is %v, allowed is 0 to 1h", f.Delay)
		}
		var t Delayer
		if t, able = target.(Delayer); able {
			begin = func(*Kernel) { t.Delay(f.Delay) }
			end = func(*Kernel) { t.Delay(0) }
		}
	default:
		return nil, nil, fmt.Errorf("its kind is %q, allowed are crash, slow, partition and delay",
			f.Kind)
	}
	if !able {
		return nil, nil, fmt.Errorf("%q knows no %s", f.Target, f.Kind)
	}
	return begin, end, nil
}
