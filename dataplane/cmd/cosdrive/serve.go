package main

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"hotbed/dataplane/cosbench"
	"hotbed/dataplane/internal/admission"
)

const (
	// mostReaders is how many connections may be open; a further one replaces the oldest of the address
	// that has most.
	mostReaders = 64
	// readerPatience is how long a reader may take for an event.
	readerPatience = 10 * time.Second
)

// server serves live progress: the latest event of each work at /, all from now on at /events.
type server struct {
	http    http.Server
	address string
	mu      sync.Mutex
	latest  map[string]cosbench.Event
	readers map[chan cosbench.Event]bool
}

func serve(address string) (*server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s := &server{address: listener.Addr().String(), latest: map[string]cosbench.Event{},
		readers: map[chan cosbench.Event]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.now)
	mux.HandleFunc("GET /events", s.events)
	s.http.Handler = mux
	s.http.ReadHeaderTimeout, s.http.IdleTimeout = 10*time.Second, 10*time.Second
	go func() { _ = s.http.Serve(admission.NewListener(listener, mostReaders)) }() // ends with close
	return s, nil
}

func (s *server) send(e cosbench.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest[e.Event+"/"+e.Stage+"/"+e.Work] = e
	for reader := range s.readers {
		select {
		case reader <- e:
		default: // one that does not keep up misses events; the load does not wait for it
		}
	}
}

func (s *server) now(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	events := make([]cosbench.Event, 0, len(s.latest))
	for _, e := range s.latest {
		events = append(events, e)
	}
	s.mu.Unlock()
	slices.SortFunc(events, func(a, b cosbench.Event) int { return cmp.Compare(a.T, b.T) })
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(readerPatience))
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(events) // the reader may have gone
}

func (s *server) events(w http.ResponseWriter, r *http.Request) {
	reader := make(chan cosbench.Event, 64)
	s.mu.Lock()
	s.readers[reader] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.readers, reader)
		s.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "application/jsonl")
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	encoder := json.NewEncoder(w)
	for {
		if out.SetWriteDeadline(time.Now().Add(readerPatience)) != nil || out.Flush() != nil {
			return
		}
		select {
		case e := <-reader:
			if encoder.Encode(e) != nil || e.Event == "done" {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// close gives readers a moment to get the last event.
func (s *server) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close() // a reader that does not read
	}
}
