// Command pmsim simulates PriorityMeister. It reads a JSON scenario from standard input and writes
// the JSON result to standard output.
//
//	pmsim run       simulate; with --progress, write the completed share as lines to standard error
//	pmsim version   the schema and the digest of the sources
//
// Exit code 1 is a failed simulation; 2 is a wrong scenario or trace. One sentence on standard
// error gives the reason. See docs/prioritymeister.md, "Simulated".
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"hotbed/dataplane/nfssim"
)

// reportEvery is the interval between progress reports.
const reportEvery = 200 * time.Millisecond

func main() {
	if len(os.Args) < 2 || len(os.Args) > 3 || len(os.Args) == 3 && os.Args[2] != "--progress" {
		usage()
	}
	switch os.Args[1] {
	case "run":
		debug.SetGCPercent(200)
		if err := run(os.Stdin, os.Stdout, len(os.Args) == 3); err != nil {
			fmt.Fprintf(os.Stderr, "pmsim: %v\n", err)
			os.Exit(2)
		}
	case "version":
		fmt.Println(nfssim.Schema, nfssim.Sources)
	default:
		usage()
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: pmsim run [--progress] < scenario.json > result.json | pmsim version")
	os.Exit(2)
}

func run(in io.Reader, out io.Writer, progress bool) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("the scenario cannot be read: %w", err)
	}
	scenario, err := nfssim.ParseScenario(text)
	if err != nil {
		return err
	}
	reported := time.Now()
	result, err := nfssim.Run(scenario, nfssim.FromFile, func(share float64) {
		if progress && time.Since(reported) > reportEvery {
			reported = time.Now()
			fmt.Fprintf(os.Stderr, "progress %.3f\n", share)
		}
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(result)
}
