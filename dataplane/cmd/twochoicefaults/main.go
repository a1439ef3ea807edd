// Command twochoicefaults runs the two-choice protocol on virtual time under faults. It compares
// the clients' view with a model, byte for byte; a seed determines a run.
//
//	twochoicefaults --seeds 0:10000        many runs; exit status 1 if one fails
//	twochoicefaults --seed 4711 --trace    one run, with all events
//	twochoicefaults --seeds 0:500 --break ack-before-sync
//	twochoicefaults --seeds 0:500 --backend rados
//
// See docs/twochoice-consistency.md.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/twochoice/faults"
	"hotbed/dataplane/twochoice/protocol"
)

func main() {
	err := run(os.Args[1:])
	command.Exit("twochoicefaults", err)
}

// options are the parsed flags.
type options struct {
	from, to    uint64
	backend     faults.Backend
	breaks      protocol.Break
	trace, json bool
	most        int // failures after which the runs end
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("twochoicefaults", flag.ContinueOnError)
	seeds := flags.String("seeds", "0:500", "`FROM:TO` of the runs, without TO")
	seed := flags.String("seed", "", "`N`, one run")
	name := flags.String("break", "sound", "`NAME` of a way in which the protocol is broken")
	backend := flags.String("backend", faults.Files.String(), "`NAME` of where agents keep their bytes: file or rados")
	flags.BoolVar(&o.trace, "trace", false, "tell all that happens, with --seed")
	first := flags.Bool("first", false, "end with the first seed that fails")
	flags.BoolVar(&o.json, "json", false, "print the result as JSON")
	usage := "[--seeds FROM:TO | --seed N [--trace]] [--backend file|rados] [--break NAME] [--first] [--json]"
	if err := command.Parse(flags, args, usage); err != nil {
		return o, err
	}
	switch *backend {
	case faults.Files.String():
	case faults.Pools.String():
		o.backend = faults.Pools
	default:
		return o, command.Usagef("--backend is %q; there are %v and %v", *backend, faults.Files, faults.Pools)
	}
	o.most = mostFailures
	if *first {
		o.most = 1
	}
	if *seed != "" {
		*seeds = *seed + ":"
	} else if o.trace {
		return o, command.Usagef("--trace is of one run: name it with --seed")
	}
	from, to, _ := strings.Cut(*seeds, ":")
	var errs [2]error
	o.from, errs[0] = strconv.ParseUint(from, 10, 63)
	o.to = o.from + 1
	if to != "" || *seed == "" {
		o.to, errs[1] = strconv.ParseUint(to, 10, 63)
	}
	if errors.Join(errs[:]...) != nil || o.to <= o.from {
		return o, command.Usagef("seeds are %q; write the first and the one after the last, such as 0:500", *seeds)
	}
	var known []string
	for _, b := range append([]protocol.Break{protocol.Sound}, protocol.Breaks()...) {
		if b.String() == *name {
			o.breaks = b
			return o, nil
		}
		known = append(known, b.String())
	}
	return o, command.Usagef("--break is %q; there are %s", *name, strings.Join(known, ", "))
}

// report is the output of --json.
type report struct {
	Seeds       uint64        `json:"seeds"`
	Failed      []failure     `json:"failed"`
	Seconds     float64       `json:"seconds"`
	Virtual     float64       `json:"virtual_seconds"`
	Totals      faults.Totals `json:"totals"`
	Backend     string        `json:"backend"`
	Break       string        `json:"break"`
	PerSecond   float64       `json:"seeds_per_second"`
	FirstFailed *uint64       `json:"first_failed"`
}

type failure struct {
	Seed   uint64 `json:"seed"`
	Error  string `json:"error"`
	Replay string `json:"replay"`
}

// mostFailures is the number of failures reported; further ones add nothing.
const mostFailures = 10

func run(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	var trace func(time.Duration, string)
	if o.trace {
		trace = func(now time.Duration, line string) { fmt.Printf("%12v %s\n", now, line) }
	}
	r := report{Failed: []failure{}, Backend: o.backend.String(), Break: o.breaks.String()}
	start := time.Now()
	shown := start
	for seed := o.from; seed < o.to && len(r.Failed) < o.most; seed++ {
		result := faults.RunOn(o.backend, seed, o.breaks, trace)
		r.Seeds++
		r.Totals.Add(result)
		if result.Err != nil {
			r.Failed = append(r.Failed, failure{seed, result.Err.Error(), faults.ReplayOn(o.backend, seed, o.breaks)})
			if !o.json {
				fmt.Printf("seed %d: %v\n    %s\n", seed, result.Err, faults.ReplayOn(o.backend, seed, o.breaks))
			}
		}
		if now := time.Now(); !o.json && now.Sub(shown) > 5*time.Second {
			shown = now
			left := now.Sub(start).Seconds() / float64(r.Seeds) * float64(o.to-seed-1)
			fmt.Fprintf(os.Stderr, "%d of %d seeds, %.0f s left\n", seed+1-o.from, o.to-o.from, left)
		}
	}
	r.Seconds = time.Since(start).Seconds()
	r.Virtual = r.Totals.Virtual.Seconds()
	r.PerSecond = float64(r.Seeds) / r.Seconds
	if len(r.Failed) > 0 {
		r.FirstFailed = &r.Failed[0].Seed
	}
	if o.json {
		err = json.NewEncoder(os.Stdout).Encode(r)
	} else {
		fmt.Printf("%d seeds, %.1f s of %.0f virtual: %d acknowledged writes, %d reads compared, %d crashes of nodes and %d of "+
			"clients, %d redirected, %d brought home, %d torn logs, %d of %d messages lost\n", r.Seeds, r.Seconds, r.Virtual,
			r.Totals.Acked, r.Totals.Reads, r.Totals.Crashes, r.Totals.ClientCrashes, r.Totals.Redirected, r.Totals.Returned,
			r.Totals.Torn, r.Totals.Lost, r.Totals.Messages)
	}
	if err == nil && len(r.Failed) > 0 {
		err = fmt.Errorf("%d of %d seeds failed", len(r.Failed), r.Seeds)
	}
	return err
}
