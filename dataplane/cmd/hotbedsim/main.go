// Command hotbedsim runs a simulation that another program drives over standard input and output.
//
//	hotbedsim ceph      a modelled Ceph; testbed/simulated drives it
//	hotbedsim queue     one queue of given customers, for timing
//	hotbedsim version   the protocol's version and the digest of the sources
//
// See docs/simulation.md.
package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"

	"hotbed/dataplane/internal/simbridge"
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
		if err := simbridge.ServeCeph(os.Stdin, os.Stdout, &busy); err != nil {
			fmt.Fprintf(os.Stderr, "hotbedsim: %v\n", err)
			os.Exit(1)
		}
	case "queue":
		if err := simbridge.ServeQueue(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintf(os.Stderr, "hotbedsim: %v\n", err)
			os.Exit(1)
		}
	case "version":
		fmt.Println(simbridge.Protocol, simbridge.Sources)
	default:
		usage()
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: hotbedsim ceph|queue|version")
	os.Exit(2)
}
