// Command hotbedsim runs a simulation that another program drives over standard input and output.
//
//	hotbedsim ceph      a modelled Ceph; testbed/simulated drives it
//	hotbedsim version   the protocol's version and the digest of the sources
//
// See docs/simulation.md.
package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/sim/ceph"
)

func main() {
	if len(os.Args) != 2 {
		usage()
	}
	switch os.Args[1] {
	case "ceph":
		// The simulation allocates little, so rarer collection costs little memory.
		debug.SetGCPercent(200)
		var busy atomic.Bool
		go leaveWithDriver(int(os.Stdin.Fd()), &busy, func() { os.Exit(3) })
		if err := ceph.Serve(os.Stdin, os.Stdout, &busy); err != nil {
			fmt.Fprintf(os.Stderr, "hotbedsim: %v\n", err)
			os.Exit(1)
		}
	case "version":
		fmt.Println(ceph.Protocol, ceph.Sources)
	default:
		usage()
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: hotbedsim ceph|version")
	os.Exit(2)
}

// lookEvery is the interval at which a program without a driver checks if it is busy.
const lookEvery = 10 * time.Millisecond

// leaveWithDriver calls leave if the driver closed its end of the pipe during a computation. A
// computation can take minutes, and nobody would read its answer. A killed driver closes its end
// exactly as a finished one does; between answers, the reader of the input sees the end.
//
// PR_SET_PDEATHSIG does not fit: it watches the thread that started the program, and a pool's
// thread can end before its process.
func leaveWithDriver(pipe int, busy *atomic.Bool, leave func()) {
	if !command.Hangup(pipe) {
		return
	}
	for !busy.Load() {
		time.Sleep(lookEvery)
	}
	leave()
}
