package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"
)

func ask(header string, times ...int64) (queueResult, error) {
	in := bytes.NewBufferString(header + "\n")
	for _, t := range times {
		_ = binary.Write(in, binary.LittleEndian, t)
	}
	var out bytes.Buffer
	var result queueResult
	if err := serveQueue(in, &out); err != nil {
		return result, err
	}
	return result, json.Unmarshal(out.Bytes(), &result)
}

func TestAQueueOfGivenCustomers(t *testing.T) {
	// Customers arrive at 10, 15 and 30 and take 8, 20 and 5.
	for servers, want := range map[string]queueResult{
		"1": {WaitNS: 0 + 3 + 8, EndNS: 43, Events: 6},
		"2": {WaitNS: 0, EndNS: 35, Events: 6},
	} {
		got, err := ask(`{"customers": 3, "servers": `+servers+`, "repeat": 2}`, 10, 5, 15, 8, 20, 5)
		if err != nil {
			t.Fatal(err)
		}
		if got.CPUS, got.WallS = 0, 0; got != want {
			t.Errorf("%s servers: %+v, want %+v", servers, got, want)
		}
	}
}

func TestBadQueuesAreNamed(t *testing.T) {
	for want, c := range map[string]struct {
		header string
		times  []int64
	}{
		"not a line of JSON":           {"customers", nil},
		"0 customers":                  {`{"servers": 1, "repeat": 1}`, nil},
		"0 servers":                    {`{"customers": 1, "repeat": 1}`, nil},
		"0 repeats":                    {`{"customers": 1, "servers": 1}`, nil},
		"the service times":            {`{"customers": 1, "servers": 1, "repeat": 1}`, []int64{1}},
		"interarrival times: number 1": {`{"customers": 1, "servers": 1, "repeat": 1}`, []int64{-1, 1}},
	} {
		if _, err := ask(c.header, c.times...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
}
