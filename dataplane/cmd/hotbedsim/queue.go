package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"syscall"
	"time"

	"hotbed/dataplane/sim"
)

// maxCustomers and maxRepeat bound a request to serveQueue.
const (
	maxCustomers = 50_000_000
	maxRepeat    = 1000
)

// queueRequest is the line of JSON that serveQueue reads first.
type queueRequest struct {
	Customers int `json:"customers"`
	Servers   int `json:"servers"`
	// Repeat is how often the same queue is simulated, for timing.
	Repeat int `json:"repeat"`
}

// queueResult is serveQueue's answer. CPU time covers only the simulations, on all threads.
type queueResult struct {
	WaitNS int64   `json:"wait_ns"` // sum over customers of the wait in queue
	EndNS  int64   `json:"end_ns"`  // when the last customer left
	Events uint64  `json:"events"`  // in one simulation
	CPUS   float64 `json:"cpu_s"`   // CPU time of one simulation, mean over the repeats
	WallS  float64 `json:"wall_s"`  // wall-clock time, likewise
}

// serveQueue simulates one first-come-first-served queue of given customers. It reads a line of
// JSON, then all interarrival times and then all service times (int64 nanoseconds, little endian).
// It writes a line of JSON. Another simulator must report the same waits for the same customers.
func serveQueue(in io.Reader, out io.Writer) error {
	var request queueRequest
	reader := bufio.NewReader(in)
	line, err := reader.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &request)
	}
	if err != nil {
		return fmt.Errorf("the request is not a line of JSON: %w", err)
	}
	switch r := request; {
	case r.Customers < 1 || r.Customers > maxCustomers:
		return fmt.Errorf("%d customers, allowed is 1 to %d", r.Customers, maxCustomers)
	case r.Servers < 1 || r.Servers > 1<<16:
		return fmt.Errorf("%d servers, allowed is 1 to %d", r.Servers, 1<<16)
	case r.Repeat < 1 || r.Repeat > maxRepeat:
		return fmt.Errorf("%d repeats, allowed is 1 to %d", r.Repeat, maxRepeat)
	}
	gaps, err := readTimes(reader, request.Customers)
	if err != nil {
		return fmt.Errorf("the interarrival times: %w", err)
	}
	services, err := readTimes(reader, request.Customers)
	if err != nil {
		return fmt.Errorf("the service times: %w", err)
	}
	var result queueResult
	wall, cpu := time.Now(), processorTime()
	for range request.Repeat {
		q := &queue{gaps: gaps, services: services, idle: request.Servers}
		k := sim.New()
		k.Post(gaps[0], q, arrival)
		k.Run()
		result.WaitNS = int64(q.wait)
		result.EndNS, result.Events = int64(k.Now()), k.Events()
	}
	result.CPUS = (processorTime() - cpu).Seconds() / float64(request.Repeat)
	result.WallS = time.Since(wall).Seconds() / float64(request.Repeat)
	return json.NewEncoder(out).Encode(result)
}

// queue is a first-come-first-served queue of given customers with equal servers.
type queue struct {
	gaps, services []time.Duration
	came           []time.Duration // of the customers so far
	begun, idle    int             // customers whose service began, servers without a customer
	wait           time.Duration
}

// The kinds of events of a queue.
const (
	arrival = iota
	departure
)

func (q *queue) Handle(k *sim.Kernel, arg uint64) {
	if arg == departure {
		q.idle++
	} else {
		q.came = append(q.came, k.Now())
		if next := len(q.came); next < len(q.gaps) {
			k.Post(k.Now()+q.gaps[next], q, arrival)
		}
	}
	if q.idle > 0 && q.begun < len(q.came) {
		q.idle--
		q.wait += k.Now() - q.came[q.begun]
		k.Post(k.Now()+q.services[q.begun], q, departure)
		q.begun++
	}
}

func readTimes(in io.Reader, n int) ([]time.Duration, error) {
	raw := make([]byte, 8*n)
	if _, err := io.ReadFull(in, raw); err != nil {
		return nil, err
	}
	times := make([]time.Duration, n)
	for i := range times {
		times[i] = time.Duration(binary.LittleEndian.Uint64(raw[8*i:]))
		if times[i] < 0 || times[i] > time.Hour {
			return nil, fmt.Errorf("number %d is %v, allowed is 0 to 1h", i+1, times[i])
		}
	}
	return times, nil
}

// processorTime returns the CPU time of this process on all CPUs.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
