// Command queuedisk serves a disk with a queue, as one file named "disk" in a FUSE mount.
//
//	queuedisk --layer base.img --layer top.img --positioning 4ms --bandwidth 60MB/s \
//	    --mount DIR --control SOCKET --pid-file FILE
//	queuedisk check --positioning 900us --bandwidth 60MB/s --size 1GiB --json
//
// See docs/queue-disk.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/internal/queuedisk"
	"hotbed/dataplane/internal/units"
	"hotbed/dataplane/service"
)

// Both programs mostly wait in system calls. A goroutine in a system call keeps its Go processor
// for up to 10 ms. With one processor per core on a small machine, the alarm's goroutine then
// waits. On two cores the alarm's mean lateness was 0.5 ms with two processors and 0.04 ms with
// eight, which also used less CPU time.
const (
	serveProcs = 8
	checkProcs = 16
)

func main() { command.Main("queuedisk", run, syscall.SIGHUP) }

func run(ctx context.Context, args []string) error {
	verb, procs := serve, serveProcs
	if len(args) > 0 && args[0] == "check" {
		verb, args, procs = check, args[1:], checkProcs
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(procs)
	}
	return verb(ctx, args)
}

// modelFlags are the flags that describe the disk.
type modelFlags struct{ positioning, bandwidth, size string }

func (m *modelFlags) register(flags *flag.FlagSet, positioning, bandwidth, size string) {
	flags.StringVar(&m.positioning, "positioning", positioning,
		"mean positioning `TIME` of random requests")
	flags.StringVar(&m.bandwidth, "bandwidth", bandwidth, "transfer `RATE`, such as 60MB/s")
	flags.StringVar(&m.size, "size", size, "capacity in `BYTES`, such as 12GiB")
}

// model parses and checks the flags; an empty size stays 0.
func (m *modelFlags) model() (service.Model, error) {
	var out service.Model
	var err error
	if out.PositioningMean, err = time.ParseDuration(m.positioning); err != nil {
		return out, command.Usagef("--positioning: %q is not a time; write one such as 4ms or 800us",
			m.positioning)
	}
	if out.Bandwidth, err = units.Rate(m.bandwidth); err != nil {
		return out, command.Usagef("--bandwidth: %w", err)
	}
	if m.size != "" {
		if out.Size, err = units.Bytes(m.size); err != nil {
			return out, command.Usagef("--size: %w", err)
		}
	}
	whole := out
	if m.size == "" {
		whole.Size = 1 // the layers give the size
	}
	if err := whole.Validate(); err != nil {
		return out, command.Usagef("%w", err)
	}
	return out, nil
}

func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("queuedisk", flag.ContinueOnError)
	var c queuedisk.Config
	var m modelFlags
	flags.Func("layer", "layer `FILE`, bottom to top; the last one is created when missing", func(file string) error {
		c.Layers = append(c.Layers, file)
		return nil
	})
	m.register(flags, "4ms", "60MB/s", "")
	flags.StringVar(&c.Mount, "mount", "", "empty `FOLDER` to mount on")
	flags.StringVar(&c.Control, "control", "", "`PATH` of the control socket")
	flags.StringVar(&c.PIDFile, "pid-file", "", "`FILE` that holds the process id while serving")
	if err := command.Parse(flags, args, "[flags]"); err != nil {
		return err
	}
	var err error
	if c.Model, err = m.model(); err != nil {
		return err
	}
	switch {
	case len(c.Layers) == 0:
		return command.Usagef("--layer is missing: name at least one layer file")
	case c.Mount == "":
		return command.Usagef("--mount is missing: name an empty folder")
	}
	return queuedisk.Serve(ctx, c)
}

// check compares a disk's mean wait with M/G/1 and fails if the error exceeds the tolerance.
func check(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("queuedisk check", flag.ContinueOnError)
	var m modelFlags
	m.register(flags, "4ms", "60MB/s", "4GiB")
	c := queuedisk.CheckConfig{}
	flags.Float64Var(&c.Load, "load", 0.8, "offered load, `SHARE` of the disk's time")
	flags.IntVar(&c.Requests, "requests", 12000, "`NUMBER` of reads")
	flags.Uint64Var(&c.Seed, "seed", 1, "`SEED` of arrivals and offsets")
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
	c.Progress = command.NewProgress()
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
