// Package nfsproxy is a proxy for an NFS version 3 server (section 4.5 of PriorityMeister). It
// forwards every call, queued by the enforcer, with at most Depth calls at the server at a time.
//
// See docs/prioritymeister.md, "Data plane".
package nfsproxy

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"time"

	"hotbed/dataplane/enforcer"
	"hotbed/dataplane/internal/limits"
	"hotbed/dataplane/internal/units"
)

// Service is a listening address and the server address that its connections are forwarded to.
type Service struct {
	Listen string `json:"listen"`
	Server string `json:"server"`
}

// Config is the configuration of a proxy. Only the parameters can change while it runs.
type Config struct {
	NFS Service `json:"nfs"`
	// Mount is forwarded unchanged; omit it if clients need no mount protocol.
	Mount *Service `json:"mount,omitempty"`
	// Control is the path of the control socket.
	Control string `json:"control"`
	// Metrics is an address that serves only metrics; empty for none.
	Metrics string `json:"metrics,omitempty"`
	// Profile is the file with the device's profile.
	Profile string `json:"profile"`
	// ClientMemory bounds the memory of a client's calls and of the replies it has not taken, such
	// as "32MiB". Above it, the client's further calls stay in its connection.
	ClientMemory string `json:"client_memory,omitempty"`
	// MaxRecord is the longest call, such as "2MiB".
	MaxRecord string `json:"max_record,omitempty"`
	// WorkloadMemory bounds the memory of all clients of a workload. Half is for what ClientMemory
	// counts, half for calls that are arriving. The default is "64MiB", or twice ClientMemory if
	// that is more.
	WorkloadMemory string `json:"workload_memory,omitempty"`
	// Connections bounds a workload's connections. The default is 512, or fewer if the limit of
	// open files requires it.
	Connections int `json:"connections,omitempty"`
	// RecordTimeout bounds the arrival of a call and connecting to the server; 30 seconds by
	// default.
	RecordTimeout enforcer.Span `json:"record_timeout,omitempty"`
	// IdleTimeout bounds how long a client that waits for nothing may neither send nor take a byte;
	// 10 minutes by default.
	IdleTimeout enforcer.Span `json:"idle_timeout,omitempty"`
	// ReplyTimeout is the time after which a call without a reply no longer counts as outstanding.
	ReplyTimeout enforcer.Span `json:"reply_timeout,omitempty"`
	Parameters   Parameters    `json:"parameters"`

	clientMemory, maxRecord, workloadMemory int
	nfs, nfsServer                          netip.AddrPort
	mount, mountServer                      netip.AddrPort
}

// Unknown selects the treatment of clients that no workload names.
type Unknown string

// The values of Unknown.
const (
	// UnknownBestEffort serves them when nothing in profile waits (pm), last (edf, byslo), or with
	// a tenth of the smallest weight (ps, cake, mclock).
	UnknownBestEffort Unknown = "best-effort"
	// UnknownRefuse closes their connections.
	UnknownRefuse Unknown = "refuse"
)

// UnknownWorkload is the name under which unknown clients are counted.
const UnknownWorkload = "unknown"

// Workload names its clients by addresses or prefixes such as 10.0.0.0/24; the longest prefix wins.
type Workload struct {
	enforcer.Workload
	Clients []string `json:"clients"`
}

// Parameters can be changed while the proxy runs.
type Parameters struct {
	enforcer.Parameters
	Workloads []Workload `json:"workloads"` // replaces the enforcer's
	Unknown   Unknown    `json:"unknown,omitempty"`
	// OtherCost is the charge for a call other than READ and WRITE; 100 microseconds by default.
	OtherCost *enforcer.Span `json:"other_cost,omitempty"`
}

// client is a prefix of a workload's addresses.
type client struct {
	prefix   netip.Prefix
	workload int
}

// clients maps addresses to workloads.
type clients []client

func (c clients) of(address netip.Addr) (workload int, known bool) {
	address = address.Unmap()
	for _, one := range c {
		if one.prefix.Contains(address) {
			return one.workload, true
		}
	}
	return 0, false
}

var goodName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// checked fills in defaults and returns the enforcer's parameters and the table of clients. The
// last workload of the enforcer is that of unknown clients.
func (p *Parameters) checked() (enforcer.Parameters, clients, error) {
	out := p.Parameters
	if p.Unknown == "" {
		p.Unknown = UnknownBestEffort
	}
	if p.Unknown != UnknownBestEffort && p.Unknown != UnknownRefuse {
		return out, nil, fmt.Errorf("unknown is %q; there are %q and %q", p.Unknown, UnknownBestEffort,
			UnknownRefuse)
	}
	if p.OtherCost == nil {
		span := enforcer.Span(100 * time.Microsecond)
		p.OtherCost = &span
	}
	if *p.OtherCost < 0 || *p.OtherCost > enforcer.Span(time.Minute) {
		return out, nil, fmt.Errorf("other_cost is %v; write a time from 0 to 1m",
			time.Duration(*p.OtherCost))
	}
	out.Workloads = nil
	least := 1.0
	var table clients
	seen := map[netip.Prefix]string{}
	for i, w := range p.Workloads {
		if !goodName.MatchString(w.Name) || w.Name == UnknownWorkload {
			return out, nil, fmt.Errorf("workload %q: write a name of letters, digits, dots, dashes and "+
				"underscores, other than %q", w.Name, UnknownWorkload)
		}
		if len(w.Clients) == 0 {
			return out, nil, fmt.Errorf("workload %q has no clients; write their addresses", w.Name)
		}
		for _, text := range w.Clients {
			prefix, err := parsePrefix(text)
			if err != nil {
				return out, nil, fmt.Errorf("workload %q: client %q is neither an address nor a prefix such "+
					"as 10.0.0.0/24", w.Name, text)
			}
			if other, twice := seen[prefix]; twice {
				return out, nil, fmt.Errorf("client %s is of the workloads %q and %q; name it once", text,
					other, w.Name)
			}
			seen[prefix] = w.Name
			table = append(table, client{prefix, i})
		}
		if w.Weight > 0 {
			least = min(least, w.Weight)
		}
		out.Workloads = append(out.Workloads, w.Workload)
	}
	slices.SortStableFunc(table, func(a, b client) int { return cmp.Compare(b.prefix.Bits(), a.prefix.Bits()) })
	out.Workloads = append(out.Workloads, enforcer.Workload{Name: UnknownWorkload, BestEffort: true,
		Weight: max(least/10, 1e-9)})
	return out, table, out.Validate()
}

func parsePrefix(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		address = address.Unmap()
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	return prefix.Masked(), err
}

// ParseParameters parses parameters from JSON; the error is one sentence.
func ParseParameters(text []byte) (Parameters, error) {
	var p Parameters
	if err := limits.Decode(text, &p); err != nil {
		return p, fmt.Errorf("the parameters cannot be read: %w", err)
	}
	_, _, err := p.checked()
	return p, err
}

// LoadConfig reads and checks a configuration file; the error is one sentence.
func LoadConfig(path string) (Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		var where *fs.PathError
		if errors.As(err, &where) {
			err = where.Err
		}
		return Config{}, fmt.Errorf("configuration %s: cannot be read (%w)", path, err)
	}
	c, err := ParseConfig(text)
	if err != nil {
		return c, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, nil
}

// ParseConfig parses a configuration from JSON; the error is one sentence.
func ParseConfig(text []byte) (Config, error) {
	var c Config
	if err := limits.Decode(text, &c); err != nil {
		return c, fmt.Errorf("it cannot be read: %w", err)
	}
	return c, c.check()
}

func (c *Config) check() error {
	c.ClientMemory, c.MaxRecord = cmp.Or(c.ClientMemory, "32MiB"), cmp.Or(c.MaxRecord, "2MiB")
	c.Connections = cmp.Or(c.Connections, 512)
	type address struct {
		what, text string
		to         *netip.AddrPort
	}
	addresses := []address{{"nfs.listen", c.NFS.Listen, &c.nfs}, {"nfs.server", c.NFS.Server, &c.nfsServer}}
	if c.Mount != nil {
		addresses = append(addresses, address{"mount.listen", c.Mount.Listen, &c.mount},
			address{"mount.server", c.Mount.Server, &c.mountServer})
	}
	if c.Metrics != "" {
		addresses = append(addresses, address{"metrics", c.Metrics, new(netip.AddrPort)})
	}
	for _, one := range addresses {
		var err error
		if *one.to, err = netip.ParseAddrPort(one.text); err != nil {
			return fmt.Errorf("%s is %q; write an address and a port such as 10.0.0.1:2049", one.what, one.text)
		}
	}
	for _, one := range []struct {
		what, text  string
		least, most int64
		to          *int
	}{{"client_memory", c.ClientMemory, 64 << 10, 1 << 30, &c.clientMemory},
		{"max_record", c.MaxRecord, 4 << 10, 1 << 30, &c.maxRecord},
		{"workload_memory", c.WorkloadMemory, 64 << 10, 1 << 40, &c.workloadMemory}} {
		if one.text == "" {
			*one.to = max(64<<20, 2*c.clientMemory)
			continue
		}
		size, err := units.Bytes(one.text)
		if err != nil {
			return fmt.Errorf("%s: %w", one.what, err)
		}
		if size < one.least || size > one.most {
			return fmt.Errorf("%s is %s; write a size from %d to %d bytes", one.what, one.text, one.least, one.most)
		}
		*one.to = int(size)
	}
	for _, one := range []struct {
		what      string
		span      *enforcer.Span
		otherwise time.Duration
	}{{"reply_timeout", &c.ReplyTimeout, time.Minute}, {"record_timeout", &c.RecordTimeout, 30 * time.Second},
		{"idle_timeout", &c.IdleTimeout, 10 * time.Minute}} {
		*one.span = cmp.Or(*one.span, enforcer.Span(one.otherwise))
		if *one.span < enforcer.Span(time.Second) {
			return fmt.Errorf("%s is %v; write at least 1s", one.what, time.Duration(*one.span))
		}
	}
	switch {
	case c.Connections < 2 || c.Connections > 1<<16:
		return fmt.Errorf("connections is %d; write a number from 2 to %d", c.Connections, 1<<16)
	case c.Control == "":
		return fmt.Errorf("control is missing; write the path of the control socket")
	case c.Profile == "":
		return fmt.Errorf("profile is missing; write the file with the device's profile")
	}
	_, _, err := c.Parameters.checked()
	return err
}
