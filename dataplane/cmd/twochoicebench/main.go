// Command twochoicebench writes bursts through the two-choice scheduler and verifies them.
//
//	twochoicebench write  --cluster FILE --nodes 64 --processes 8 --size 4MiB --ledger L   a burst
//	twochoicebench verify --cluster FILE --ledger L              read back acknowledged writes
//	twochoicebench probe  --cluster FILE --servers 8             time probes of servers (figure 11)
//	twochoicebench status --cluster FILE                         print each agent's counts
//
// The result is JSON on standard output. See docs/twochoice.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"hotbed/dataplane/internal/apps"
	"hotbed/dataplane/internal/burst"
	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/internal/units"
	"hotbed/dataplane/twochoice/protocol"
	"hotbed/dataplane/twochoice/server"
)

var verbs = map[string]func(context.Context, []string) error{"write": write, "verify": verify, "probe": probe,
	"status": status, "apps": applications, "process": process, "table": table}

func main() {
	command.Main("twochoicebench", func(ctx context.Context, args []string) error {
		if len(args) > 0 && verbs[args[0]] != nil {
			return verbs[args[0]](ctx, args[1:])
		}
		return command.Usagef("say what to do: write, verify, probe, status, apps or table; `twochoicebench write --help` lists the flags of write")
	})
}

// parse reads the flags and the cluster file.
func parse(flags *flag.FlagSet, args []string) (server.Cluster, error) {
	path := flags.String("cluster", "", "cluster `FILE` (JSON), the same as the agents'")
	if err := command.Parse(flags, args, "[flags]"); err != nil {
		return server.Cluster{}, err
	}
	if *path == "" {
		return server.Cluster{}, command.Usagef("--cluster is missing: name the cluster file")
	}
	c, err := server.LoadCluster(*path)
	if err != nil {
		return c, command.Usage(err)
	}
	return c, nil
}

// progress returns a function that shows progress on a terminal.
func progress(what string) func(done, all int) {
	shown := command.NewProgress()
	return func(done, all int) {
		if shown.Show(float64(done)/float64(all), "%s: %d of %d", what, done, all); done == all {
			shown.End()
		}
	}
}

func write(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("twochoicebench write", flag.ContinueOnError)
	o := burst.Options{Progress: progress("write")}
	flags.IntVar(&o.Nodes, "nodes", 1, "`N` client nodes, each with probes of its own")
	flags.IntVar(&o.Processes, "processes", 8, "`N` processes on each")
	flags.IntVar(&o.Writes, "writes", 1, "`N` writes that each process does")
	size := flags.String("size", "4MiB", "`BYTES` of a write")
	flags.StringVar(&o.File, "file", "burst", "`NAME` of the file that they write together, a stripe each")
	flags.IntVar(&o.Start, "start", 0, "`N`, the first stripe")
	flags.Uint64Var(&o.Seed, "seed", 1, "of the bytes")
	ledger := flags.String("ledger", "", "`FILE` for what was acknowledged, a line each, for verify")
	c, err := parse(flags, args)
	if err != nil {
		return err
	}
	bytes, err := units.Bytes(*size)
	if err != nil {
		return command.Usagef("--size: %w", err)
	}
	o.Size = int(bytes)
	if err := o.Check(); err != nil {
		return command.Usage(err)
	}
	var out *os.File
	if *ledger != "" {
		// Open the ledger before the first write: without a ledger, the writes cannot be verified.
		if out, err = os.OpenFile(*ledger, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666); err != nil {
			return command.Usagef("--ledger: %w; name a file that is not there yet", err)
		}
	}
	r, err := burst.Run(ctx, c, o)
	if err != nil {
		return err
	}
	if out != nil {
		if err := saveLedger(out, r.Done); err != nil {
			return err
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(burst.Summarize(r, len(c.Agents))); err != nil {
		return err
	}
	if len(r.Failed) > 0 {
		return fmt.Errorf("%d of %d writes failed, the first: %s: %s", len(r.Failed), len(r.Failed)+len(r.Done),
			r.Failed[0].Object, r.Failed[0].Error)
	}
	return nil
}

func saveLedger(out *os.File, done []burst.Done) error {
	buffer := bufio.NewWriter(out)
	encoder := json.NewEncoder(buffer)
	var err error
	for i := range done {
		err = errors.Join(err, encoder.Encode(done[i]))
	}
	return errors.Join(err, buffer.Flush(), out.Close())
}

func loadLedger(path string) ([]burst.Done, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, command.Usagef("--ledger: %w", err)
	}
	defer func() { _ = file.Close() }()
	decoder := json.NewDecoder(bufio.NewReader(file))
	var out []burst.Done
	for {
		var d burst.Done
		err := decoder.Decode(&d)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, command.Usagef("--ledger: line %d of %s is none that write made: %w", len(out)+1, path, err)
		}
		out = append(out, d)
	}
}

func verify(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("twochoicebench verify", flag.ContinueOnError)
	ledger := flags.String("ledger", "", "`FILE` that write made")
	parallel := flags.Int("parallel", 8, "`N` objects at a time")
	c, err := parse(flags, args)
	if err != nil {
		return err
	}
	if *ledger == "" || *parallel < 1 {
		return command.Usagef("--ledger names the file that write made, and --parallel is 1 or more")
	}
	writes, err := loadLedger(*ledger)
	if err != nil {
		return err
	}
	bad, err := burst.Verify(ctx, c, writes, *parallel, progress("verify"))
	if err != nil {
		return err
	}
	out := struct {
		Objects int             `json:"objects"`
		Bad     []burst.Failure `json:"bad"`
	}{len(writes), append([]burst.Failure{}, bad...)}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		return err
	}
	if len(bad) > 0 {
		return fmt.Errorf("%d of %d acknowledged objects are not as they were written, the first: %s: %s", len(bad),
			len(writes), bad[0].Object, bad[0].Error)
	}
	return nil
}

func probe(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("twochoicebench probe", flag.ContinueOnError)
	servers := flags.Int("servers", 8, "`N` servers that each probe asks")
	schedulers := flags.Int("schedulers", 1, "`N` client nodes that probe at the same time")
	times := flags.Int("times", 100, "`N` probes, one after another, by each")
	size := flags.String("size", "4MiB", "`BYTES` of the write that is probed for")
	c, err := parse(flags, args)
	if err != nil {
		return err
	}
	bytes, err := units.Bytes(*size)
	switch {
	case err != nil:
		return command.Usagef("--size: %w", err)
	case *servers < 1 || *servers > len(c.Agents):
		return command.Usagef("--servers is %d; the cluster has %d", *servers, len(c.Agents))
	case *schedulers < 1 || *times < 1:
		return command.Usagef("--schedulers and --times are 1 or more")
	}
	r, err := burst.Probe(ctx, c, *servers, *schedulers, *times, uint64(bytes))
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// agentStatus is an agent's counts, or the error that prevented reading them.
type agentStatus struct {
	Agent   int                  `json:"agent"`
	Address string               `json:"address"`
	Has     *protocol.AgentStats `json:"has"`
	Error   string               `json:"error,omitempty"`
}

func status(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("twochoicebench status", flag.ContinueOnError)
	wait := flags.Duration("wait", 0, "ask again for so long until all agents answer, such as 60s")
	c, err := parse(flags, args)
	if err != nil {
		return err
	}
	p, err := server.NewProber(c)
	if err != nil {
		return command.Usage(err)
	}
	defer p.Close()
	end := time.Now().Add(*wait)
	out, err := statusOf(ctx, c, p)
	for err != nil && ctx.Err() == nil && time.Now().Before(end) {
		time.Sleep(200 * time.Millisecond)
		out, err = statusOf(ctx, c, p)
	}
	return errors.Join(json.NewEncoder(os.Stdout).Encode(map[string]any{"agents": out}), err)
}

// statusOf asks all agents in parallel; the error is that of the first agent without an answer.
func statusOf(ctx context.Context, c server.Cluster, p *server.Prober) ([]agentStatus, error) {
	out := make([]agentStatus, len(c.Agents))
	var all sync.WaitGroup
	for i, address := range c.Agents {
		all.Go(func() {
			out[i] = agentStatus{Agent: i, Address: address}
			has, err := p.Status(ctx, protocol.Node(i))
			if err != nil {
				out[i].Error = err.Error()
				return
			}
			out[i].Has = &has
		})
	}
	all.Wait()
	for _, a := range out {
		if a.Has == nil {
			return out, errors.New(a.Error)
		}
	}
	return out, nil
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
