package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"hotbed/dataplane/cosbench"
)

// stageNames gathers a flag that may be there several times.
type stageNames []string

func (s *stageNames) String() string { return "" }

func (s *stageNames) Set(name string) error {
	*s = append(*s, name)
	return nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("cosdrive run", flag.ContinueOnError)
	folder := flags.String("archive", "", "`DIR` that gets the results, as the next wN-NAME")
	openLoop := flags.String("open-loop", "", "`RATE[:poisson|constant]`: operations of each normal work begin at "+
		"so many a second, and latencies count from when they were to begin")
	seed := flags.Uint64("seed", 0, "of all that is drawn; another one each time unless given")
	asJSON := flags.Bool("json", false, "print progress as lines of JSON")
	listen := flags.String("listen", "", "`ADDRESS:PORT`, such as 127.0.0.1:8090, to serve progress at by HTTP")
	options := cosbench.Options{Submitted: time.Now()}
	flags.Var((*stageNames)(&options.Stages), "only-stage", "`NAME` of a stage to run alone; may be repeated")
	flags.StringVar(&options.Triggers, "triggers", "", "`DIR` that holds the scripts of triggers")
	path, err := parse(flags, args)
	if err != nil {
		return err
	}
	if *folder == "" {
		return usagef("--archive is missing: name the folder that gets the results")
	}
	if options.OpenLoop, err = rate(*openLoop); err != nil {
		return err
	}
	options.Seed = *seed
	given := false
	flags.Visit(func(f *flag.Flag) { given = given || f.Name == "seed" })
	if !given {
		options.Seed = rand.Uint64()
	}
	plan, err := load(path)
	if err != nil {
		return err
	}
	options.Warn = func(text string) { fmt.Fprintf(os.Stderr, "cosdrive: %s: %s\n", path, text) }
	for _, warning := range plan.Warnings {
		options.Warn(warning)
	}
	if err := plan.Check(options); err != nil {
		return usagef("%s: %w", path, err)
	}
	tell, closeTeller, err := teller(out, *asJSON, *listen)
	if err != nil {
		return err
	}
	defer closeTeller()
	options.Events = tell
	return drive(ctx, plan, options, cosbench.Archive{Folder: *folder})
}

// drive runs a plan and saves what came of it, however it ended. A run that failed before its first
// request leaves nothing.
func drive(ctx context.Context, plan *cosbench.Plan, options cosbench.Options, archive cosbench.Archive) error {
	entry, err := archive.Claim(plan.Name)
	if err != nil {
		return usagef("--archive: %w", err)
	}
	if err := entry.SaveConfig(plan.Workload); err != nil {
		return err
	}
	result, err := cosbench.Run(ctx, plan, options)
	if result == nil {
		return err
	}
	folder := entry.Path()
	if err != nil && ctx.Err() == nil && !result.Measured() {
		folder = ""
		err = errors.Join(err, entry.Discard())
	} else {
		err = errors.Join(err, entry.Save(result))
	}
	done := result.Event(folder)
	if err != nil {
		done.Error = err.Error()
	}
	options.Events(done)
	if err == nil && ctx.Err() != nil {
		err = errors.New("interrupted; what was measured until then is in " + entry.Path())
	}
	return err
}

// teller sends events to where the user wants them.
func teller(out io.Writer, asJSON bool, address string) (func(cosbench.Event), func(), error) {
	var served *server
	finish := func() {}
	if address != "" {
		var err error
		if served, err = serve(address); err != nil {
			return nil, nil, usagef("--listen: %w", err)
		}
		finish = served.close
	}
	var mu sync.Mutex
	show := person(out)
	if asJSON {
		encoder := json.NewEncoder(out)
		show = func(e cosbench.Event) { _ = encoder.Encode(e) } // whoever read it may have gone
	}
	return func(e cosbench.Event) {
		mu.Lock()
		defer mu.Unlock()
		show(e)
		if served != nil {
			served.send(e)
		}
	}, finish, nil
}

// person shows progress to somebody who reads: a line a stage, and one that changes while it runs.
func person(out io.Writer) func(cosbench.Event) {
	info, err := os.Stderr.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	number := func(value *float64, unit float64) string {
		if value == nil {
			return "-"
		}
		return fmt.Sprintf("%.1f", *value*unit)
	}
	return func(e cosbench.Event) {
		if terminal {
			fmt.Fprint(os.Stderr, "\r\033[K")
		}
		switch {
		case e.Event == "snapshot" && terminal:
			fmt.Fprintf(os.Stderr, "%s %s: %d op/s, %.2f MB/s, %d failed, mean %s ms, p95 %s ms, %s s left",
				e.Stage, e.Work, e.Ops, float64(e.Bytes)/1e6, e.Errors, number(e.Mean, 1e3), number(e.P95, 1e3),
				number(e.ETA, 1))
		case e.Event == "stage" && e.State != "booting" && e.State != "running" && e.State != "sleeping":
			_, _ = fmt.Fprintf(out, "%-16s %-10s %8.1f s %9d ops %4d failed  mean %s ms  p95 %s ms\n", e.Stage, e.State,
				e.T, e.Ops, e.Errors, number(e.Mean, 1e3), number(e.P95, 1e3))
		case e.Event == "done" && e.Folder != "":
			_, _ = fmt.Fprintf(out, "%s: %s\n", e.State, e.Folder)
		}
	}
}
