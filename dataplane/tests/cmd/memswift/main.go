// Command memswift is an in-memory object store that answers as Swift does, for benchmarks and for
// trying the COSBench driver. Anyone who can reach it may log in as test:tester with the key
// testing, so it should listen on loopback.
//
//	memswift --listen 127.0.0.1:0    prints the URL at which one logs in
package main

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"hotbed/dataplane/tests/memswift"
)

func main() {
	at := flag.String("listen", "127.0.0.1:0", "`ADDRESS:PORT` for TempAuth and Swift")
	flag.Parse()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	listener, err := net.Listen("tcp", *at)
	if err != nil {
		fmt.Fprintf(os.Stderr, "memswift: cannot listen at %s: %v\n", *at, err)
		os.Exit(1)
	}
	server := &http.Server{Handler: &memswift.Server{User: "test:tester", Key: "testing"}}
	go func() { _ = server.Serve(listener) }()
	fmt.Printf("http://%s%s\n", listener.Addr(), memswift.AuthPath)
	<-stop
	_ = server.Close()
}
