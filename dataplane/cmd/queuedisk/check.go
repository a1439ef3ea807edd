package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/internal/queuedisk"
)

// check compares a disk's mean wait with M/G/1 and fails if the error exceeds the tolerance.
func check(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("queuedisk check", flag.ContinueOnError)
	var m modelFlags
	m.register(flags, "4ms", "60MB/s", "4GiB")
	c := queuedisk.CheckConfig{}
	flags.Float64Var(&c.Load, "load", 0.8, "offered load, `SHARE` of the disk's time")
	flags.IntVar(&c.Requests, "requests", 12000, "`NUMBER` of reads")
	flags.Uint64Var(&c.Seed, "seed", 1, "`SEED` of arrivals and offsets")
	flags.StringVar(&c.Dir, "dir", "", "`FOLDER` for temporary files, the system's by default")
	asJSON := flags.Bool("json", false, "print the report as JSON")
	if err := command.Parse(flags, args, "[flags]"); err != nil {
		return err
	}
	var err error
	if c.Model, err = m.model(); err != nil {
		return err
	}
	switch {
	case !(c.Load > 0 && c.Load < 1):
		return command.Usagef("--load is %g, allowed is above 0 and below 1", c.Load)
	case c.Requests < 1000 || c.Requests > 10_000_000:
		return command.Usagef("--requests is %d, allowed is 1000 to 10000000", c.Requests)
	case c.Model.Size < 1<<20 || c.Model.Size%4096 != 0:
		return command.Usagef("--size is %d bytes, allowed are multiples of 4096 from 1 MiB on", c.Model.Size)
	}
	if c.Binary, err = os.Executable(); err != nil {
		return err
	}
	c.Progress = terminal(os.Stderr)
	queuedisk.BecomeRealtime() // the load comes from another machine and must not wait for this one
	report, err := queuedisk.Check(ctx, c)
	if err != nil {
		return err
	}
	if *asJSON {
		out := json.NewEncoder(os.Stdout)
		out.SetIndent("", "  ")
		if err := out.Encode(report); err != nil {
			return err
		}
	} else {
		fmt.Print(report)
	}
	if !report.Within {
		return errors.New("the mean wait is not within 10 % of M/G/1; is the machine busy?")
	}
	return nil
}

// terminal returns f if f is a terminal, else nil.
func terminal(f *os.File) io.Writer {
	if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return f
	}
	return nil
}
