package nfsproxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"hotbed/dataplane/enforcer"
	"hotbed/dataplane/internal/admission"
	"hotbed/dataplane/internal/unixsocket"
)

// Control serves HTTP for a proxy: everything on its socket, and only metrics at an address.
//
//	GET  /parameters       the parameters in force
//	PUT  /parameters       replaces the parameters; connections and queued calls stay
//	GET  /status           counts as JSON
//	POST /trace?folder=F   starts recording a trace of each workload into a folder
//	DELETE /trace          ends the recording
//	GET  /metrics          for Prometheus
//
// A refused request is answered with status 400 and {"error": one sentence}.
type Control struct {
	servers   []*http.Server
	listeners []net.Listener
}

// mostAsking is the maximum number of connections to each address.
const mostAsking = 8

// largestBody is the maximum length of a request's body.
const largestBody = 4 << 20

// NewControl opens the control socket and, if configured, the metrics address, and serves both.
func NewControl(p *Proxy) (*Control, error) {
	c := &Control{}
	listener, err := unixsocket.Listen(p.config.Control, "a proxy")
	if err != nil {
		return nil, err
	}
	c.serve(p, listener, p.routes())
	if p.config.Metrics != "" {
		listener, err := net.Listen("tcp", p.config.Metrics)
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("metrics: cannot listen at %s: %w", p.config.Metrics, err)
		}
		page := http.NewServeMux()
		page.HandleFunc("GET /metrics", p.serveMetrics)
		c.serve(p, listener, page)
	}
	return c, nil
}

func (c *Control) serve(p *Proxy, listener net.Listener, handler http.Handler) {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 5 * time.Second}
	c.servers = append(c.servers, server)
	c.listeners = append(c.listeners, listener)
	go func() {
		if err := server.Serve(admission.NewListener(listener, mostAsking)); !errors.Is(err, http.ErrServerClosed) {
			p.do(func() { p.log("nothing is answered at %s any more: %v", listener.Addr(), err) })
		}
	}()
}

// Close stops serving. Close it before the proxy.
func (c *Control) Close() {
	for _, server := range c.servers {
		_ = server.Close()
	}
}

func (p *Proxy) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", p.serveMetrics)
	mux.HandleFunc("GET /parameters", func(w http.ResponseWriter, _ *http.Request) {
		p.respond(w, func() (any, error) { return p.parameters, nil })
	})
	mux.HandleFunc("PUT /parameters", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largestBody))
		if err != nil {
			refuse(w, err)
			return
		}
		parameters, err := ParseParameters(body)
		if err != nil {
			refuse(w, err)
			return
		}
		p.respond(w, func() (any, error) { return fine, p.apply(parameters) })
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		p.respond(w, func() (any, error) { return p.status(), nil })
	})
	mux.HandleFunc("POST /trace", func(w http.ResponseWriter, r *http.Request) {
		folder := r.URL.Query().Get("folder")
		if info, err := os.Stat(folder); err != nil || !info.IsDir() {
			refuse(w, fmt.Errorf("folder is %q; write the path of a folder that is there", folder))
			return
		}
		p.respond(w, func() (any, error) { return fine, p.startRecording(folder) })
	})
	mux.HandleFunc("DELETE /trace", func(w http.ResponseWriter, _ *http.Request) {
		finish := func() error { return errors.New("no trace is being recorded") }
		p.do(func() {
			if p.traces != nil {
				finish = p.detachRecording()
			}
		})
		if err := finish(); err != nil {
			refuse(w, err)
			return
		}
		reply(w, fine)
	})
	return mux
}

// fine is the answer to a successful change.
var fine = map[string]bool{"ok": true}

// respond answers with the result of f, which runs on the proxy's thread.
func (p *Proxy) respond(w http.ResponseWriter, f func() (any, error)) {
	var document any
	err := errors.New("the proxy has ended")
	p.do(func() { document, err = f() })
	if err != nil {
		refuse(w, err)
		return
	}
	reply(w, document)
}

func (p *Proxy) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	var page []byte
	p.do(func() { page = p.metrics() })
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(page)
}

func reply(w http.ResponseWriter, document any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(document)
}

func refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()})
}

// Status is the answer to GET /status.
type Status struct {
	PID         int              `json:"pid"`
	Policy      enforcer.Policy  `json:"policy"`
	Clients     int              `json:"clients"`
	Queued      int              `json:"queued"`
	Outstanding int              `json:"outstanding"`
	Refused     uint64           `json:"refused"`
	Lost        uint64           `json:"lost"`
	TimedOut    uint64           `json:"timed_out"`
	Recording   bool             `json:"recording"`
	Service     ServiceStatus    `json:"service"`
	Workloads   []WorkloadStatus `json:"workloads"`
}

// ServiceStatus compares the server's service with the charges since the parameters came into force
// (enforcer.Service). Times are in seconds.
type ServiceStatus struct {
	Calls   uint64  `json:"calls"`
	Charged float64 `json:"charged_seconds"`
	Busy    float64 `json:"busy_seconds"`
	// Lag is the smallest overhead.latency of a profile for its bounds to hold.
	Lag float64 `json:"lag_seconds"`
	// Turns splits Busy by kind and size, for reads and writes only.
	Turns []TurnStatus `json:"turns"`
}

// WorkloadStatus is the status of a workload.
type WorkloadStatus struct {
	Name         string  `json:"name"`
	Queued       int     `json:"queued"`
	Outstanding  int     `json:"outstanding"`
	Requests     uint64  `json:"requests"`
	Held         uint64  `json:"held"`
	OutOfProfile uint64  `json:"out_of_profile"`
	Work         float64 `json:"work_seconds"`
	Waited       float64 `json:"waited_seconds"`
	Weight       float64 `json:"weight"`
	// Longest is the longest response since the parameters came into force.
	Longest float64 `json:"longest_seconds"`
	// Connections and Memory (bytes) are the use of the workload's budgets. ConnectionsRefused
	// counts connections above the budget.
	Connections        int    `json:"connections"`
	Memory             int    `json:"memory_bytes"`
	ConnectionsRefused uint64 `json:"connections_refused"`
}

func (p *Proxy) status() Status {
	s := Status{PID: os.Getpid(), Policy: p.parameters.Policy, Clients: len(p.sessions),
		Queued: p.enforcer.Queued(), Outstanding: p.enforcer.Outstanding(), Refused: p.counts.refused,
		Lost: p.counts.lost, TimedOut: p.counts.timedOut, Recording: p.traces != nil}
	service := p.enforcer.Service()
	s.Service = ServiceStatus{service.Done, service.Cost.Seconds(), service.Busy.Seconds(),
		service.Lag.Seconds(), p.turns.status()}
	for i, w := range p.enforcer.Stats() {
		own := p.workloads[i]
		s.Workloads = append(s.Workloads, WorkloadStatus{Name: own.name, Queued: w.Queued,
			Outstanding: w.Outstanding, Requests: w.Done, Held: w.Held, OutOfProfile: w.OutOfProfile,
			Work: w.Work, Waited: w.Waited.Seconds(), Weight: w.Weight, Longest: own.counts.longest.Seconds(),
			Connections: own.budget.connections, Memory: own.budget.memory(), ConnectionsRefused: own.counts.refused})
	}
	return s
}
