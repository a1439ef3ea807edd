// Command nfsproxy is a proxy for an NFS version 3 server; the enforcer queues its calls.
//
//	nfsproxy --config FILE           serve
//	nfsproxy --config FILE --check   check the configuration
//
// See docs/prioritymeister.md, "Data plane".
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"

	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/nfsproxy"
)

func main() { command.Main("nfsproxy", run) }

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("nfsproxy", flag.ContinueOnError)
	path := flags.String("config", "", "configuration `FILE` (JSON)")
	check := flags.Bool("check", false, "only say whether the configuration is good")
	if err := command.Parse(flags, args, "--config FILE [--check]"); err != nil {
		return err
	}
	if *path == "" {
		return command.Usage(errors.New("--config is missing: name the configuration file"))
	}
	config, err := nfsproxy.LoadConfig(*path)
	if err != nil {
		return command.Usage(err)
	}
	if *check {
		fmt.Println("the configuration is good")
		return nil
	}
	return serve(ctx, config)
}

func serve(ctx context.Context, config nfsproxy.Config) error {
	// The serving thread waits in system calls; it must not also wait for a Go processor.
	runtime.GOMAXPROCS(max(4, runtime.GOMAXPROCS(0)))
	debug.SetGCPercent(400)
	if debug.SetMemoryLimit(-1) == math.MaxInt64 { // GOMEMLIMIT is not set
		debug.SetMemoryLimit(config.Memory())
	}
	proxy, err := nfsproxy.New(config, os.Stderr)
	if err != nil {
		return err
	}
	control, err := nfsproxy.NewControl(proxy)
	if err != nil {
		return err
	}
	go func() {
		<-ctx.Done()
		control.Close()
		proxy.Stop()
	}()
	for _, address := range proxy.Addresses() {
		fmt.Fprintf(os.Stderr, "nfsproxy: serving at %s\n", address)
	}
	return proxy.Run()
}
