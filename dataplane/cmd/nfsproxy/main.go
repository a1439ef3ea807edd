// Command nfsproxy stands before an NFS version 3 server and queues its calls by the enforcer.
//
//	nfsproxy --config FILE           serve
//	nfsproxy --config FILE --check   say whether the configuration is good
//
// See docs/prioritymeister.md, "Data plane".
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"hotbed/dataplane/nfsproxy"
)

// usageError is a mistake in what was asked for: one sentence, exit status 2.
type usageError struct{ error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := run(ctx, os.Args[1:])
	var usage usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "nfsproxy: %v\n", err)
		os.Exit(2)
	default:
		fmt.Fprintf(os.Stderr, "nfsproxy: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("nfsproxy", flag.ContinueOnError)
	flags.SetOutput(new(strings.Builder)) // one sentence, not the flag package's page
	path := flags.String("config", "", "configuration `FILE` (JSON)")
	check := flags.Bool("check", false, "only say whether the configuration is good")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		flags.SetOutput(os.Stdout)
		fmt.Println("usage: nfsproxy --config FILE [--check]")
		flags.PrintDefaults()
		return err
	} else if err != nil {
		return usageError{fmt.Errorf("%w; `nfsproxy --help` lists the flags", err)}
	}
	if flags.NArg() > 0 {
		return usageError{fmt.Errorf("unexpected argument %q; `nfsproxy --help` lists the flags", flags.Arg(0))}
	}
	if *path == "" {
		return usageError{errors.New("--config is missing: name the configuration file")}
	}
	config, err := nfsproxy.LoadConfig(*path)
	if err != nil {
		return usageError{err}
	}
	if *check {
		fmt.Println("the configuration is good")
		return nil
	}
	return serve(ctx, config)
}

func serve(ctx context.Context, config nfsproxy.Config) error {
	// The thread that serves waits in system calls; it must not wait for a processor of the runtime.
	runtime.GOMAXPROCS(max(4, runtime.GOMAXPROCS(0)))
	debug.SetGCPercent(400)
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
