// Command memnfs serves NFS version 3 from memory, for benchmarks and for trying the proxy and the
// replayer. It trusts every client, so it should listen on loopback.
//
//	memnfs --listen 127.0.0.1:0 [--work 50us]    prints the address that it serves at
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"hotbed/dataplane/tests/memnfs"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "`ADDRESS:PORT` for NFS and the mount protocol")
	work := flag.Duration("work", 0, "processor `TIME` that every call takes")
	flag.Parse()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	server := memnfs.Server{FS: memnfs.NewFS(), Work: *work}
	if err := server.Listen(*listen); err != nil {
		fmt.Fprintf(os.Stderr, "memnfs: cannot listen at %s: %v\n", *listen, err)
		os.Exit(1)
	}
	fmt.Println(server.Address())
	<-stop
	server.Close()
}
