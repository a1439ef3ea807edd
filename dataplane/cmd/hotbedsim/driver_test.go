package main

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"hotbed/dataplane/tests/must"
)

// watched starts leaveWithDriver on a pipe; leaving closes the channel left.
func watched(t *testing.T, busy *atomic.Bool) (driver *os.File, left chan struct{}) {
	t.Helper()
	pipe, driver, err := os.Pipe()
	must.Succeed(t, err)
	t.Cleanup(func() { _ = pipe.Close(); _ = driver.Close() })
	left = make(chan struct{})
	go leaveWithDriver(int(pipe.Fd()), busy, func() { close(left) })
	return driver, left
}

func TestWhoComputesForNobodyLeaves(t *testing.T) {
	var busy atomic.Bool
	busy.Store(true)
	driver, left := watched(t, &busy)
	_, err := driver.Write([]byte("a request that nobody has read yet"))
	must.Succeed(t, err)
	select {
	case <-left:
		t.Fatal("it left while the driver was there")
	case <-time.After(5 * lookEvery):
	}
	must.Succeed(t, driver.Close())
	<-left
}

func TestTheEndOfTheInputIsReadAsSuch(t *testing.T) {
	var busy atomic.Bool
	driver, left := watched(t, &busy)
	must.Succeed(t, driver.Close())
	select {
	case <-left:
		t.Fatal("it left although it had nothing to compute")
	case <-time.After(5 * lookEvery):
	}
	busy.Store(true) // a computation that starts after the driver left has no reader either
	<-left
}
