// Command replay sends a trace to an NFS version 3 server and prints latencies as JSON.
//
//	replay prepare --server HOST:PORT --export /e --file f --size 1GiB   create and fill the file
//	replay run     --server HOST:PORT --export /e --file f --trace T     a trace, open or closed loop
//	replay load    --server HOST:PORT --export /e --file f --size 4KiB --depth 16 --duration 10s
//	replay check   --server HOST:PORT --export /e --file f     use files of this name, compare all bytes
//
// See docs/prioritymeister.md, "Data plane".
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"time"

	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/internal/nfs3"
	"hotbed/dataplane/internal/replay"
	"hotbed/dataplane/internal/traces"
	"hotbed/dataplane/internal/units"
)

var verbs = map[string]func(context.Context, []string) error{"prepare": prepare, "run": run, "load": load,
	"check": check}

func main() {
	runtime.GOMAXPROCS(max(4, runtime.GOMAXPROCS(0))) // the sending thread waits in system calls
	command.Main("replay", func(ctx context.Context, args []string) error {
		if len(args) > 0 && verbs[args[0]] != nil {
			return verbs[args[0]](ctx, args[1:])
		}
		return command.Usagef("say what to do: prepare, run, load or check; `replay run --help` lists the flags of run")
	})
}

// targetFlags name the file on the server.
type targetFlags struct{ server, mount, export, file string }

func (t *targetFlags) register(flags *flag.FlagSet) {
	flags.StringVar(&t.server, "server", "", "`ADDRESS:PORT` of the NFS server")
	flags.StringVar(&t.mount, "mount", "", "`ADDRESS:PORT` of its mount protocol; the same when left out")
	flags.StringVar(&t.export, "export", "/", "`PATH` that the server exports")
	flags.StringVar(&t.file, "file", "", "`NAME` of a file in it")
}

func (t *targetFlags) target() (replay.Target, error) {
	out := replay.Target{Export: t.export, File: t.file}
	var err error
	if out.Server, err = netip.ParseAddrPort(t.server); err != nil {
		return out, command.Usagef("--server is %q; write an address and a port such as 10.0.0.1:2049", t.server)
	}
	out.Mount = out.Server
	if t.mount != "" {
		if out.Mount, err = netip.ParseAddrPort(t.mount); err != nil {
			return out, command.Usagef("--mount is %q; write an address and a port such as 10.0.0.1:20048", t.mount)
		}
	}
	if t.file == "" || strings.Contains(t.file, "/") || len(t.file) > nfs3.MaxName {
		return out, command.Usagef("--file is %q; write the name of a file in the export's root", t.file)
	}
	return out, nil
}

func prepare(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("replay prepare", flag.ContinueOnError)
	var t targetFlags
	t.register(flags)
	size := flags.String("size", "1GiB", "`BYTES` that the file is to have at least")
	seed := flags.Uint64("seed", 1, "of its contents")
	if err := command.Parse(flags, args, "[flags]"); err != nil {
		return err
	}
	target, err := t.target()
	if err != nil {
		return err
	}
	bytes, err := units.Bytes(*size)
	if err != nil {
		return command.Usagef("--size: %w", err)
	}
	progress := command.NewProgress()
	return target.Prepare(ctx, bytes, *seed, func(done int64) {
		progress.Show(float64(done)/float64(bytes), "prepare: %d of %d MiB", done>>20, bytes>>20)
	})
}

// optionFlags are the flags that run and load share.
type optionFlags struct {
	connections       int
	slo, length, wait time.Duration
	log               string
	seed              uint64
}

func (o *optionFlags) register(flags *flag.FlagSet) {
	flags.IntVar(&o.connections, "connections", 1, "`N` connections to the server")
	flags.DurationVar(&o.slo, "slo", 0, "`TIME` above which a request counts as a miss")
	flags.DurationVar(&o.wait, "wait", 0, "`TIME` after the last request at which it ends whatever has no reply")
	flags.DurationVar(&o.length, "duration", 0, "`TIME` after which no more requests are sent")
	flags.StringVar(&o.log, "log", "", "`FILE` for a line (ns, latency in ns, read or write, bytes) a request")
	flags.Uint64Var(&o.seed, "seed", 1, "for offsets that the trace does not give")
}

func (o *optionFlags) options(t replay.Target) (replay.Options, error) {
	out := replay.Options{Server: t.Server, Connections: o.connections, Seed: o.seed, Transfer: 1 << 20,
		SLO: o.slo, Drain: time.Minute, Wait: o.wait, Duration: o.length, Progress: command.NewProgress()}
	switch {
	case o.connections < 1 || o.connections > 1024:
		return out, command.Usagef("--connections is %d; write 1 to 1024", o.connections)
	case o.slo < 0 || o.length < 0 || o.wait < 0:
		return out, command.Usagef("--slo, --wait and --duration are times that are not negative")
	}
	return out, nil
}

// play finds the file, replays the trace and prints the result.
func (o *optionFlags) play(ctx context.Context, t replay.Target, options replay.Options, trace traces.Trace) (err error) {
	if options.Handle, options.FileSize, err = t.Find(); err != nil {
		return err
	}
	if options.FileSize < 4096 {
		return fmt.Errorf("%s has %d bytes: prepare it first", t, options.FileSize)
	}
	finish, err := o.openLog(&options)
	if err != nil {
		return err
	}
	result, err := replay.Run(ctx, options, trace)
	options.Progress.End()
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(result), finish())
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("replay run", flag.ContinueOnError)
	var t targetFlags
	var o optionFlags
	t.register(flags)
	o.register(flags)
	trace := flags.String("trace", "", "`FILE` in the format plain: ns,hex size,DiskRead|DiskWrite[,hex offset]")
	start := flags.Float64("start-at", 0, "Unix `TIME` at which the first request is due; too late is an error")
	closed := flags.Int("closed", 0, "keep `N` requests in flight whatever the trace's times are")
	repeat := flags.Bool("repeat", false, "closed: begin again at the trace's end, for --duration")
	if err := command.Parse(flags, args, "[flags]"); err != nil {
		return err
	}
	target, err := t.target()
	if err != nil {
		return err
	}
	options, err := o.options(target)
	switch {
	case err != nil:
		return err
	case *trace == "":
		return command.Usagef("--trace is missing: name a trace's file")
	case *closed < 0 || *closed > 1<<16:
		return command.Usagef("--closed is %d; write 1 to %d", *closed, 1<<16)
	case *repeat && (*closed == 0 || o.length == 0):
		return command.Usagef("--repeat needs --closed and --duration")
	}
	options.Closed, options.Repeat = *closed, *repeat
	if *start > 0 {
		options.Start = time.Unix(0, int64(*start*1e9))
	}
	opened, err := traces.Open(*trace)
	if err != nil {
		return command.Usage(err)
	}
	return o.play(ctx, target, options, opened)
}

func load(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("replay load", flag.ContinueOnError)
	var t targetFlags
	var o optionFlags
	t.register(flags)
	o.register(flags)
	size := flags.String("size", "4KiB", "`BYTES` of a request")
	depth := flags.Int("depth", 1, "`N` requests in flight")
	write := flags.Bool("write", false, "write rather than read")
	if err := command.Parse(flags, args, "[flags]"); err != nil {
		return err
	}
	target, err := t.target()
	if err != nil {
		return err
	}
	options, err := o.options(target)
	if err != nil {
		return err
	}
	bytes, err := units.Bytes(*size)
	switch {
	case err != nil:
		return command.Usagef("--size: %w", err)
	case bytes < 1 || bytes > 1<<30:
		return command.Usagef("--size is %s; write a size up to 1GiB", *size)
	case *depth < 1 || *depth > 1<<16:
		return command.Usagef("--depth is %d; write 1 to %d", *depth, 1<<16)
	case o.length == 0:
		return command.Usagef("--duration is missing: say how long, such as 10s")
	}
	options.Closed, options.Repeat = *depth, true
	one := traces.Request{Offset: -1, Size: bytes, Read: !*write}
	return o.play(ctx, target, options, traces.Listed([]traces.Request{one}))
}

// openLog makes the replay write every request to the log, if a log was requested. It refuses to
// overwrite a log.
func (o *optionFlags) openLog(options *replay.Options) (finish func() error, err error) {
	if o.log == "" {
		return func() error { return nil }, nil
	}
	file, err := os.OpenFile(o.log, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil, command.Usagef("--log: %s is there already; name another file", o.log)
	}
	if err != nil {
		return nil, command.Usagef("--log: %w", err)
	}
	out := bufio.NewWriterSize(file, 1<<20)
	kinds := map[bool]string{true: "DiskRead", false: "DiskWrite"}
	options.Log = func(at, latency time.Duration, read bool, size int64) {
		_, _ = fmt.Fprintf(out, "%d,%d,%s,%d\n", at, latency, kinds[read], size)
	}
	return func() error { return errors.Join(out.Flush(), file.Close()) }, nil
}

// check uses files through the server and compares every byte.
func check(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("replay check", flag.ContinueOnError)
	var t targetFlags
	t.register(flags)
	connections := flags.Int("connections", 2, "`N` clients at once")
	steps := flags.Int("steps", 200, "`N` operations of each")
	seed := flags.Uint64("seed", 1, "of what is done")
	if err := command.Parse(flags, args, "[flags]"); err != nil {
		return err
	}
	target, err := t.target()
	if err != nil {
		return err
	}
	if *connections < 1 || *connections > 64 || *steps < 1 {
		return command.Usagef("--connections is %d and --steps %d; write 1 to 64 and at least 1", *connections, *steps)
	}
	start := time.Now()
	if err := target.Check(ctx, *connections, *steps, *seed); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"schema": 1, "same": true,
		"operations": *connections * *steps, "seconds": time.Since(start).Seconds()})
}
