// Command cosdrive drives an object store with a COSBench workload, from this one process.
//
//	cosdrive run WORKLOAD.xml --archive DIR [flags]   run it; results in COSBench's archive layout
//	cosdrive check WORKLOAD.xml                       print the parsed workload, or its mistake
//
// Both print JSON; see docs/cosbench.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"

	"hotbed/dataplane/cosbench"
	"hotbed/dataplane/cosbench/store"
	"hotbed/dataplane/internal/command"
)

func main() {
	command.Main("cosdrive", func(ctx context.Context, args []string) error { return cosdrive(ctx, args, os.Stdout) })
}

func cosdrive(ctx context.Context, args []string, out io.Writer) error {
	verb := ""
	if len(args) > 0 {
		verb = args[0]
	}
	switch verb {
	case "run":
		return run(ctx, args[1:], out)
	case "check":
		return check(args[1:], out)
	}
	return command.Usagef("say what to do: `cosdrive run WORKLOAD.xml --archive DIR` or `cosdrive check WORKLOAD.xml`")
}

// usage is the order of arguments of both verbs.
const usage = "WORKLOAD.xml [flags]"

// load reads a workload file and checks the whole workload.
func load(path string) (*cosbench.Plan, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, command.Usage(err)
	}
	defer func() { _ = file.Close() }() // the file was only read
	workload, err := cosbench.Read(file)
	if err != nil {
		return nil, command.Usagef("%s: %w", path, err)
	}
	plan, err := cosbench.MakePlan(workload, store.All())
	if err != nil {
		return nil, command.Usagef("%s: %w", path, err)
	}
	return plan, nil
}

func check(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("cosdrive check", flag.ContinueOnError)
	path := ""
	if err := command.Parse(flags, args, usage, &path); err != nil {
		return err
	}
	plan, err := load(path)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", " ")
	return encoder.Encode(plan)
}

// rate parses RATE[:poisson|constant].
func rate(text string) (*cosbench.Rate, error) {
	if text == "" {
		return nil, nil
	}
	number, arrivals, found := strings.Cut(text, ":")
	if !found {
		arrivals = "poisson"
	}
	value, err := strconv.ParseFloat(number, 64)
	if err != nil || !(value > 0) || math.IsInf(value, 0) || arrivals != "poisson" && arrivals != "constant" {
		return nil, command.Usagef("--open-loop: %q is no rate; write operations a second and poisson or constant, "+
			"such as 200:poisson", text)
	}
	return &cosbench.Rate{PerSecond: value, Poisson: arrivals == "poisson"}, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("cosdrive run", flag.ContinueOnError)
	folder := flags.String("archive", "", "`DIR` that gets the results, as the next wN-NAME")
	openLoop := flags.String("open-loop", "", "`RATE[:poisson|constant]`: operations of each normal work begin at "+
		"so many a second, and latencies count from their intended beginning")
	options := cosbench.Options{Seed: rand.Uint64()}
	flags.Func("seed", "`NUMBER` that repeats all draws; a random one unless given", func(text string) (err error) {
		options.Seed, err = strconv.ParseUint(text, 10, 64)
		return err
	})
	flags.Func("only-stage", "`NAME` of a stage to run alone; may be repeated", func(name string) error {
		options.Stages = append(options.Stages, name)
		return nil
	})
	path := ""
	if err := command.Parse(flags, args, usage, &path); err != nil {
		return err
	}
	if *folder == "" {
		return command.Usagef("--archive is missing: name the folder that gets the results")
	}
	var err error
	if options.OpenLoop, err = rate(*openLoop); err != nil {
		return err
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
		return command.Usagef("%s: %w", path, err)
	}
	var mu sync.Mutex
	encoder := json.NewEncoder(out)
	options.Events = func(e cosbench.Event) {
		mu.Lock()
		defer mu.Unlock()
		_ = encoder.Encode(e) // the reader may have gone
	}
	return drive(ctx, plan, options, cosbench.Archive{Folder: *folder})
}

// drive runs a plan and saves its results, also if the run failed or was interrupted. A run that
// failed before its first request saves nothing.
func drive(ctx context.Context, plan *cosbench.Plan, options cosbench.Options, archive cosbench.Archive) error {
	entry, err := archive.Claim(plan.Name)
	if err != nil {
		return command.Usagef("--archive: %w", err)
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
