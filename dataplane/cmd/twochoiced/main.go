// Command twochoiced is an object server with the two-choice scheduler's agent. It keeps data in a
// folder or in a Ceph pool on one OSD.
//
//	twochoiced --cluster FILE --node N --folder DIR                                  serve
//	twochoiced --cluster FILE --node N --pool NAME --ceph-user U --ceph-keyring FILE
//	twochoiced --cluster FILE --node N --check                 check the configuration
//
// The cluster file is the same on all nodes and names the key file; a key is never on a command
// line. See docs/twochoice-server.md and docs/twochoice-rados.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/twochoice/protocol"
	"hotbed/dataplane/twochoice/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := run(ctx, os.Args[1:])
	command.Exit("twochoiced", err)
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("twochoiced", flag.ContinueOnError)
	path := flags.String("cluster", "", "cluster `FILE` (JSON), the same on all nodes")
	node := flags.Int("node", -1, "`N`, this agent's place in the cluster file, from 0")
	var where place
	flags.StringVar(&where.folder, "folder", "", "`DIR` for the agent's data, of its own")
	flags.StringVar(&where.ceph.Pool, "pool", "", "`NAME` of the agent's pool of Ceph, of its own")
	flags.StringVar(&where.ceph.Conf, "ceph-conf", "/etc/ceph/ceph.conf", "Ceph's configuration `FILE`")
	flags.StringVar(&where.ceph.User, "ceph-user", "", "`USER` of Ceph, without the \"client.\" before it")
	flags.StringVar(&where.ceph.Keyring, "ceph-keyring", "", "`FILE` with the user's key")
	flags.BoolVar(&where.takeOver, "take-over", false, "fence off an agent on another machine that has the pool")
	check := flags.Bool("check", false, "only say whether the configuration is good")
	usage := "--cluster FILE --node N (--folder DIR | --pool NAME --ceph-user USER) [--check]"
	if err := command.Parse(flags, args, usage); err != nil {
		return err
	}
	if *path == "" {
		return command.Usagef("--cluster is missing: name the cluster file")
	}
	if !*check {
		if err := where.check(); err != nil {
			return err
		}
	}
	cluster, err := server.LoadCluster(*path)
	if err != nil {
		return command.Usage(err)
	}
	if *node < 0 || *node >= len(cluster.Agents) {
		return command.Usagef("--node is %d; the cluster file names agents 0 to %d", *node, len(cluster.Agents)-1)
	}
	if _, err := server.LoadKey(cluster.KeyFile); err != nil {
		return command.Usage(err)
	}
	if where.ceph.Pool != "" && cluster.Memory == 0 && debug.SetMemoryLimit(-1) < math.MaxInt64 {
		cluster.Memory = debug.SetMemoryLimit(-1) / 4 // librados copies the data it writes
	}
	if _, err := cluster.RequestMemory(); err != nil {
		return command.Usage(err)
	}
	if *check {
		fmt.Println("the configuration is good")
		return nil
	}
	s, err := where.start(cluster, protocol.Node(*node))
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "twochoiced %d: serving at %s\n", *node, s.Address())
	go func() {
		<-ctx.Done()
		s.Stop()
	}()
	if err := tellReady(); err != nil {
		fmt.Fprintf(os.Stderr, "twochoiced %d: %v\n", *node, err)
	}
	return s.Wait()
}
