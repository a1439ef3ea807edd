package queuedisk

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"time"

	"hotbed/dataplane/internal/admission"
)

// request is one line on the control socket. A nil pointer is a field that was not given.
type request struct {
	Op            string   `json:"op"`
	On            *bool    `json:"on,omitempty"`
	PositioningUs *float64 `json:"positioning_us,omitempty"`
	Bandwidth     *float64 `json:"bandwidth_bytes,omitempty"`
	Slow          *float64 `json:"slow,omitempty"`
	Error         *bool    `json:"error,omitempty"`
}

// answer is the line sent back; only the stats request gives stats.
type answer struct {
	OK    bool   `json:"ok"`
	Error string `json:"message,omitempty"`
	PID   int    `json:"pid,omitempty"`
	*Stats
}

const operations = `"ping", "stats", "shape" (on), "set" (positioning_us, bandwidth_bytes) and ` +
	`"fault" (slow, error)`

// handle answers one request line.
func handle(s *Shaper, line []byte) answer {
	var r request
	decode := json.NewDecoder(bytes.NewReader(line))
	decode.DisallowUnknownFields()
	if err := decode.Decode(&r); err != nil {
		return answer{Error: fmt.Sprintf("the request cannot be read: %v", err)}
	}
	if err := r.fields(); err != nil {
		return answer{Error: err.Error()}
	}
	var err error
	switch r.Op {
	case "ping":
		return answer{OK: true, PID: os.Getpid()}
	case "stats":
		stats := s.Stats()
		return answer{OK: true, Stats: &stats}
	case "shape":
		s.SetShaping(*r.On)
	case "set":
		var positioning *time.Duration
		if us := r.PositioningUs; us != nil {
			if !(math.Abs(*us) <= 1e12) {
				return answer{Error: fmt.Sprintf("positioning_us is %g, far too large", *us)}
			}
			p := time.Duration(math.Round(*us * 1e3))
			positioning = &p
		}
		err = s.SetModel(positioning, r.Bandwidth)
	case "fault":
		err = s.SetFault(r.Slow, r.Error)
	}
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{OK: true}
}

// fields refuses a request with fields of another operation, or with none of its own.
func (r request) fields() error {
	given := map[string]bool{
		"on": r.On != nil, "positioning_us": r.PositioningUs != nil,
		"bandwidth_bytes": r.Bandwidth != nil, "slow": r.Slow != nil, "error": r.Error != nil,
	}
	allowed, known := map[string][]string{
		"ping": {}, "stats": {}, "shape": {"on"},
		"set": {"positioning_us", "bandwidth_bytes"}, "fault": {"slow", "error"},
	}[r.Op]
	if !known {
		return fmt.Errorf("unknown op %q; there are %s", r.Op, operations)
	}
	found := len(allowed) == 0
	for _, name := range allowed {
		found = found || given[name]
		delete(given, name)
	}
	for name, there := range given {
		if there {
			return fmt.Errorf("op %q takes no %q; there are %s", r.Op, name, operations)
		}
	}
	if !found {
		return fmt.Errorf("op %q needs one of %q", r.Op, allowed)
	}
	return nil
}

// mostAsking bounds the connections to the control socket; a further one replaces the oldest.
const mostAsking = 32

// serveControl answers every connection, line by line, until the listener is closed.
func serveControl(listener net.Listener, s *Shaper) {
	listener = admission.NewListener(listener, mostAsking)
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(100 * time.Millisecond) // for example, no file descriptors are left
			continue
		}
		go func() {
			defer func() { _ = conn.Close() }()
			lines := bufio.NewScanner(conn)
			out := json.NewEncoder(conn)
			for lines.Scan() {
				if out.Encode(handle(s, lines.Bytes())) != nil {
					return
				}
			}
		}()
	}
}

// Ask sends one request line to the control socket at path and decodes the answer into out. An
// answer that is not ok becomes an error with the answer's message.
func Ask(path, line string, out any) error {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return err
	}
	reply, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		return err
	}
	var status answer
	if err := json.Unmarshal(reply, &status); err != nil {
		return err
	}
	if !status.OK {
		return errors.New(status.Error)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(reply, out)
}
