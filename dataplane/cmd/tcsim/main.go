// Command tcsim simulates write bursts under the two-choice scheduler and others: it reads a JSON
// request (burst.Parameters) from standard input and writes the JSON result to standard output.
//
//	tcsim run       simulate
//	tcsim version   the version of request and result, and the digest of the sources
//
// See docs/twochoice.md.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/sim/burst"
)

// version is the version of the request and the result.
const version = 1

// answer is a run's result and cost; only the cost differs between machines.
type answer struct {
	*burst.Result
	Cost cost `json:"cost"`
}

type cost struct {
	Events uint64  `json:"events"`
	CPUS   float64 `json:"cpu_s"`
	WallS  float64 `json:"wall_s"`
	MiB    float64 `json:"peak_mib"`
}

func main() {
	if len(os.Args) != 2 {
		usage()
	}
	switch os.Args[1] {
	case "run":
		pipe := int(os.Stdout.Fd())
		go func() { // a large cluster takes minutes, and a killed reader needs no answer
			if command.Hangup(pipe) {
				os.Exit(3)
			}
		}()
		if err := run(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintf(os.Stderr, "tcsim: %v\n", err)
			os.Exit(1)
		}
	case "version":
		fmt.Println(version, burst.Sources)
	default:
		usage()
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: tcsim run|version")
	os.Exit(2)
}

func run(in io.Reader, out io.Writer) error {
	// Most memory is allocated at the start and kept.
	debug.SetGCPercent(400)
	p, err := burst.Read(in)
	if err != nil {
		return err
	}
	started := time.Now()
	result, err := burst.Run(p)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(out)
	if err := json.NewEncoder(buffered).Encode(answer{result,
		cost{result.Events, command.ProcessorTime().Seconds(), time.Since(started).Seconds(), peak()}}); err != nil {
		return err
	}
	return buffered.Flush()
}

// peak returns this process's peak memory (MiB). The kernel's rusage can include the parent's.
func peak() (kilobytes float64) {
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		if _, after, found := strings.Cut(string(status), "VmHWM:"); found {
			_, _ = fmt.Sscan(after, &kilobytes)
		}
	}
	return kilobytes / 1024
}
