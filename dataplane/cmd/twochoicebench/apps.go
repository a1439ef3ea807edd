package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"hotbed/dataplane/internal/apps"
	"hotbed/dataplane/internal/burst"
	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/internal/units"
)

func init() {
	verbs["apps"], verbs["process"], verbs["table"] = applications, process, table
}

// applications runs a plan: many applications in parallel, each client process a real process.
func applications(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("twochoicebench apps", flag.ContinueOnError)
	path := flags.String("plan", "", "`FILE` with the plan (JSON): compute nodes, processes, applications")
	check := flags.Bool("check", false, "only say whether cluster file and plan are good")
	c, err := parse(flags, args)
	if err != nil {
		return err
	}
	if *path == "" {
		return command.Usagef("--plan is missing: name the file with the plan")
	}
	plan, err := apps.LoadPlan(*path, len(c.Agents))
	if err != nil {
		return command.Usage(err)
	}
	if *check {
		fmt.Println("the plan is good")
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("this program does not know where it is: %w", err)
	}
	report, err := apps.Run(ctx, c, plan, self, "process")
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		return err
	}
	failed := 0
	for _, a := range report.Apps {
		failed += a.Failed
	}
	switch {
	case failed > 0:
		return fmt.Errorf("%d writes failed, the first: %s", failed, report.Errors[0])
	case report.Verified != nil && len(report.Verified.Bad) > 0:
		return fmt.Errorf("%d of %d objects are not as they were written, the first: %s", len(report.Verified.Bad),
			report.Verified.Objects, report.Verified.Bad[0])
	}
	return nil
}

// process is the main of a client process, which apps starts.
func process(_ context.Context, args []string) error {
	if len(args) > 0 {
		return command.Usagef("process is started by apps, and takes no arguments")
	}
	return apps.Process(os.Stdin, os.Stdout)
}

// table times a redirect table during redirected writes to one object (figure 12).
func table(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("twochoicebench table", flag.ContinueOnError)
	o := burst.TableOptions{}
	flags.IntVar(&o.Writers, "writers", 8, "`N` processes that write at the same time")
	flags.IntVar(&o.Writes, "writes", 2000, "`N` writes in all")
	flags.IntVar(&o.Samples, "samples", 50, "`N` times that the table's length is asked for")
	flags.Uint64Var(&o.Seed, "seed", 1, "of the ranges")
	size := flags.String("object", "1MiB", "`BYTES` of the object, within which each write has a random range")
	c, err := parse(flags, args)
	if err != nil {
		return err
	}
	bytes, err := units.Bytes(*size)
	if err != nil {
		return command.Usagef("--object: %w", err)
	}
	o.Object = uint64(bytes)
	if err := o.Check(); err != nil {
		return command.Usage(err)
	}
	r, err := burst.Table(ctx, c, o)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}
