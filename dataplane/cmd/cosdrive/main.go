// Command cosdrive drives an object store with a COSBench workload, from this one process.
//
//	cosdrive run WORKLOAD.xml --archive DIR [flags]   run it; results in COSBench's archive layout
//	cosdrive check WORKLOAD.xml [--json]              what the workload means, or what is wrong with it
//
// See docs/cosbench.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"hotbed/dataplane/cosbench"
	"hotbed/dataplane/cosbench/auth"
	"hotbed/dataplane/cosbench/stores"
)

// usageError is a mistake of the user's: one sentence, exit status 2.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := cosdrive(ctx, os.Args[1:], os.Stdout)
	var usage usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "cosdrive: %v\n", err)
		os.Exit(2)
	default:
		fmt.Fprintf(os.Stderr, "cosdrive: %v\n", err)
		os.Exit(1)
	}
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
	return usagef("say what to do: `cosdrive run WORKLOAD.xml --archive DIR` or `cosdrive check WORKLOAD.xml`")
}

// parse reads flags, which may be before and behind the workload's file, and returns the file.
func parse(flags *flag.FlagSet, args []string) (string, error) {
	flags.SetOutput(new(strings.Builder)) // one sentence, not the flag package's page
	path := ""
	for {
		err := flags.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(os.Stdout)
			fmt.Printf("usage: %s WORKLOAD.xml [flags]\n", flags.Name())
			flags.PrintDefaults()
			return "", err
		}
		switch {
		case err != nil:
			return "", usagef("%w; `%s --help` lists the flags", err, flags.Name())
		case flags.NArg() == 0 && path == "":
			return "", usagef("name the workload: %s WORKLOAD.xml", flags.Name())
		case flags.NArg() == 0:
			return path, nil
		case path != "":
			return "", usagef("unexpected argument %q; `%s --help` lists the flags", flags.Arg(0), flags.Name())
		}
		path, args = flags.Arg(0), flags.Args()[1:]
	}
}

// load reads a workload and checks all of it.
func load(path string) (*cosbench.Plan, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, usageError{err}
	}
	defer func() { _ = file.Close() }() // it was only read
	workload, err := cosbench.Read(file)
	if err != nil {
		return nil, usagef("%s: %w", path, err)
	}
	plan, err := cosbench.MakePlan(workload, cosbench.Kinds{Storage: stores.All(), Auth: auth.Types()})
	if err != nil {
		return nil, usagef("%s: %w", path, err)
	}
	return plan, nil
}

func check(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("cosdrive check", flag.ContinueOnError)
	asJSON := flags.Bool("json", false, "print the plan as JSON, secrets masked")
	asXML := flags.Bool("xml", false, "print it as XML with everything inherited, secrets masked")
	path, err := parse(flags, args)
	if err != nil {
		return err
	}
	plan, err := load(path)
	if err != nil {
		return err
	}
	switch {
	case *asXML:
		return cosbench.WriteXML(out, plan.Workload)
	case *asJSON:
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", " ")
		return encoder.Encode(plan)
	}
	for _, warning := range plan.Warnings {
		fmt.Fprintf(os.Stderr, "cosdrive: %s: %s\n", path, warning)
	}
	_, err = io.WriteString(out, plan.Describe())
	return err
}

// rate reads RATE[:poisson|constant].
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
		return nil, usagef("--open-loop: %q is no rate; write operations a second and poisson or constant, "+
			"such as 200:poisson", text)
	}
	return &cosbench.Rate{PerSecond: value, Poisson: arrivals == "poisson"}, nil
}
