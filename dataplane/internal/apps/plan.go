// Package apps runs applications that write bursts through the two-choice scheduler, on compute
// nodes with a scheduler and several client processes each, as in section VI.B of Dai et al. (SC
// 2014). Every client process is a process of the operating system with its own bytes. The
// schedulers of all compute nodes of one machine share one process.
package apps

import (
	"fmt"
	"os"
	"time"

	"hotbed/dataplane/internal/limits"
	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/protocol"
)

// Application is a job on some of the compute nodes. Each client process of these nodes is a rank
// of the job and writes bursts to the stripes of the job's file.
type Application struct {
	// Name is the name of the job and its file.
	Name string `json:"name"`
	// Scheduler places the job's writes; empty means the cluster's scheduler.
	Scheduler twochoice.Policy `json:"scheduler"`
	// Pool is a pool of the plan's Ceph. With a pool, writes are objects of the pool, which CRUSH
	// places, without a scheduler or an agent.
	Pool string `json:"pool,omitempty"`
	// FirstNode is the first of Nodes compute nodes (wrapping around); Nodes 0 means all.
	FirstNode int `json:"first_node"`
	Nodes     int `json:"nodes"`
	// Width is the number of servers that the file is striped over, from its start; 0 means all.
	Width int `json:"width"`
	// Start is the job's start, relative to the run's.
	Start twochoice.Span `json:"start"`
	// Bursts is the number of bursts per rank: each writes Writes times Size bytes, Think apart.
	Bursts int            `json:"bursts"`
	Writes int            `json:"writes"`
	Size   int            `json:"size"`
	Think  twochoice.Span `json:"think"`
	// Background applications end after all others: their ranks then begin no further write.
	Background bool `json:"background"`
	// Repeat makes a background application continue until then, with further stripes.
	Repeat bool `json:"repeat"`
}

// Plan describes what to run.
type Plan struct {
	// Nodes is the number of compute nodes; Processes is the number of client processes on each.
	Nodes     int `json:"nodes"`
	Processes int `json:"processes"`
	// Seed determines the bytes.
	Seed uint64        `json:"seed"`
	Apps []Application `json:"apps"`
	// Ceph gives applications with a pool access to the pool.
	Ceph *Ceph `json:"ceph,omitempty"`
	// Verify makes new clients read back the writes of all foreground applications.
	Verify bool `json:"verify"`
	// VerifyAll also reads back the background's writes.
	VerifyAll bool `json:"verify_all"`
	// Patience bounds the whole run's duration.
	Patience twochoice.Span `json:"patience"`
}

// Ceph names the files that give a user access to a Ceph cluster, as on every client node.
type Ceph struct {
	Conf    string `json:"conf"`
	Keyring string `json:"keyring"`
	// User has no "client." prefix.
	User string `json:"user"`
}

// mostProcesses is the maximum number of client processes of one machine.
const mostProcesses = 1 << 14

// LoadPlan reads a plan; the error is one sentence.
func LoadPlan(path string, agents int) (Plan, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Plan{}, fmt.Errorf("the plan cannot be read: %w", err)
	}
	p := Plan{Patience: twochoice.Span(time.Hour)}
	if err := limits.Decode(text, &p); err != nil {
		return p, fmt.Errorf("the plan %s cannot be read: %w", path, err)
	}
	if err := p.complete(agents); err != nil {
		return p, fmt.Errorf("the plan %s: %w", path, err)
	}
	return p, nil
}

// complete fills in defaults and returns a mistake as an error of one sentence.
func (p *Plan) complete(agents int) error {
	switch {
	case p.Nodes < 1 || p.Processes < 1 || p.Nodes > mostProcesses || p.Nodes*p.Processes > mostProcesses:
		return fmt.Errorf("%d nodes with %d processes each; both are at least 1, and %d processes at most", p.Nodes,
			p.Processes, mostProcesses)
	case len(p.Apps) == 0:
		return fmt.Errorf("apps is empty; name one application at least")
	case p.Patience <= 0:
		return fmt.Errorf("patience is a time above 0")
	}
	names, ends := map[string]bool{}, false
	for i := range p.Apps {
		a := &p.Apps[i]
		if a.Nodes == 0 {
			a.Nodes = p.Nodes
		}
		if a.Width == 0 {
			a.Width = agents
		}
		if a.Bursts == 0 {
			a.Bursts = 1
		}
		if err := a.check(p, agents); err != nil {
			return fmt.Errorf("apps[%d] (%s): %w", i, a.Name, err)
		}
		if names[a.Name] {
			return fmt.Errorf("two applications have the name %s", a.Name)
		}
		names[a.Name] = true
		ends = ends || !a.Background
	}
	if !ends {
		return fmt.Errorf("all applications are in the background, which ends with the others; make one the foreground")
	}
	return nil
}

func (a *Application) check(p *Plan, agents int) error {
	switch {
	case a.Name == "" || len(a.Name) > protocol.MaxName-20:
		return fmt.Errorf("the name has %d bytes; allowed are 1 to %d", len(a.Name), protocol.MaxName-20)
	case a.FirstNode < 0 || a.FirstNode >= p.Nodes || a.Nodes < 1 || a.Nodes > p.Nodes:
		return fmt.Errorf("%d nodes from node %d; there are %d, numbered from 0", a.Nodes, a.FirstNode, p.Nodes)
	case a.Width < 1 || a.Width > agents:
		return fmt.Errorf("width is %d; the cluster has %d agents", a.Width, agents)
	case a.Bursts < 1 || a.Writes < 1 || a.Size < 1 || a.Size > protocol.MaxData:
		return fmt.Errorf("%d bursts of %d writes of %d bytes; all are at least 1, a write has %d bytes at most", a.Bursts,
			a.Writes, a.Size, protocol.MaxData)
	case a.Start < 0 || a.Think < 0:
		return fmt.Errorf("start and think are times of 0 or more")
	case a.Repeat && !a.Background:
		return fmt.Errorf("only a background application repeats itself")
	}
	if a.Pool != "" {
		switch {
		case a.Scheduler != "":
			return fmt.Errorf("scheduler is %s and pool %s; in a pool CRUSH places writes: leave one of them out",
				a.Scheduler, a.Pool)
		case p.Ceph == nil || p.Ceph.Conf == "" || p.Ceph.Keyring == "" || p.Ceph.User == "":
			return fmt.Errorf("pool is %s, and the plan's ceph does not name conf, keyring and user", a.Pool)
		}
		return nil
	}
	if a.Scheduler == "" {
		return nil
	}
	scheduler := twochoice.Defaults(a.Scheduler)
	return scheduler.Validate()
}

// ranks returns the number of the application's processes.
func (a *Application) ranks(p *Plan) int { return a.Nodes * p.Processes }

// rank returns the process's rank, or -1 if its node does not run the application.
func (a *Application) rank(p *Plan, process int) int {
	place := (process/p.Processes - a.FirstNode + p.Nodes) % p.Nodes
	if place >= a.Nodes {
		return -1
	}
	return place*p.Processes + process%p.Processes
}

// stripe returns the number of the n-th object that a rank writes. Ranks take turns. A file on fewer
// servers than exist skips the others (the home of stripe k is k agents after the file's start).
func stripe(n, rank, ranks, width, agents int) uint64 {
	j := n*ranks + rank
	return uint64(j/width*agents + j%width)
}

// object returns the name of a stripe.
func (a *Application) object(stripe uint64) string { return fmt.Sprintf("%s/%d", a.Name, stripe) }

// seed returns the seed of the application's bytes, which differs between applications.
func (p *Plan) seed(app int) uint64 { return p.Seed + uint64(app)*0x9e3779b97f4a7c15 }
