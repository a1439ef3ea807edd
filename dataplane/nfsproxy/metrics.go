package nfsproxy

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"hotbed/dataplane/internal/nfs3"
)

// counts are the proxy's own counts since its start.
type counts struct {
	accepted, refused           uint64 // connections
	idle, unfinished            uint64 // connections closed: inactive, or call incomplete
	broken, lost                uint64 // connections that a client reset; that the server ended
	malformed                   uint64 // connections closed because the client sent no valid RPC
	passed                      uint64 // calls of other programs
	abandoned                   uint64 // calls of lost connections
	timedOut, unmatched, paused uint64
	traceRowsLost               uint64
}

// The histograms' bounds start at firstBound and double.
const (
	firstBound = 100 * time.Microsecond
	boundCount = 18 // up to 13 s
)

// histogram counts times for Prometheus.
type histogram struct {
	counts [boundCount + 1]uint64
	sum    time.Duration
}

func (h *histogram) add(d time.Duration) {
	i := 0
	for bound := firstBound; i < boundCount && d > bound; bound *= 2 {
		i++
	}
	h.counts[i]++
	h.sum += d
}

// workloadCounts are a workload's counts, by kind of call.
type workloadCounts struct {
	requests [3]uint64
	bytes    [3]uint64
	waited   histogram     // from arrival to the server
	response histogram     // from arrival to the end of the reply
	server   histogram     // the part of it at the server
	longest  time.Duration // response, since the parameters came into force
	refused  uint64        // connections above the limit
}

func (c *workloadCounts) done(kind nfs3.Kind, size int, response, server time.Duration) {
	c.requests[kind]++
	c.bytes[kind] += uint64(size)
	c.response.add(response)
	c.longest = max(c.longest, response)
	c.server.add(server)
}

// page is a page of metrics in Prometheus' text format.
type page struct{ bytes.Buffer }

func (p *page) head(name, kind, help string) {
	fmt.Fprintf(p, "# HELP hotbed_nfsproxy_%s %s\n# TYPE hotbed_nfsproxy_%s %s\n", name, help, name, kind)
}

func (p *page) one(name, labels string, value float64) {
	if labels != "" {
		labels = "{" + labels + "}"
	}
	fmt.Fprintf(p, "hotbed_nfsproxy_%s%s %s\n", name, labels, strconv.FormatFloat(value, 'g', -1, 64))
}

func (p *page) histogram(name, labels string, h *histogram) {
	total := uint64(0)
	bound := firstBound
	for i, n := range h.counts {
		total += n
		le := "+Inf"
		if i < boundCount {
			le = strconv.FormatFloat(bound.Seconds(), 'g', -1, 64)
		}
		p.one(name+"_bucket", labels+`,le="`+le+`"`, float64(total))
		bound *= 2
	}
	p.one(name+"_sum", labels, h.sum.Seconds())
	p.one(name+"_count", labels, float64(total))
}

var kinds = []string{nfs3.Other: "other", nfs3.Read: "read", nfs3.Write: "write"}

// metrics writes a page. It must run on the proxy's thread.
func (p *Proxy) metrics() []byte {
	var out page
	c := &p.counts
	out.head("info", "gauge", "Policy, mode and depth of the enforcer.")
	out.one("info", fmt.Sprintf("policy=%q,mode=%q,depth=\"%d\"", p.parameters.Policy,
		p.enforcer.Parameters().Mode, p.parameters.Depth), 1)
	out.head("clients", "gauge", "Connections of clients.")
	out.one("clients", "", float64(len(p.sessions)))
	out.head("outstanding", "gauge", "Calls at the server.")
	out.one("outstanding", "", float64(p.enforcer.Outstanding()))
	for _, counter := range []struct {
		name, help string
		value      uint64
	}{
		{"accepted_total", "Connections that were accepted.", c.accepted},
		{"refused_total", "Connections of unknown clients that were refused.", c.refused},
		{"broken_total", "Connections that broke on the client's side.", c.broken},
		{"lost_total", "Connections that the server ended or refused.", c.lost},
		{"idle_total", "Connections closed because the client neither sent nor took anything.", c.idle},
		{"unfinished_total", "Connections closed because a call did not arrive in time.", c.unfinished},
		{"malformed_total", "Connections closed because the client did not speak RPC.", c.malformed},
		{"passed_total", "Calls of other programs, passed on at once.", c.passed},
		{"abandoned_total", "Calls with a connection that was gone before the reply.", c.abandoned},
		{"timed_out_total", "Calls that no longer count because no reply came.", c.timedOut},
		{"unmatched_total", "Replies to no call.", c.unmatched},
		{"paused_total", "Times a client's calls were left because its memory was used up.", c.paused},
		{"trace_rows_lost_total", "Rows of recorded traces that could not be written.", c.traceRowsLost},
	} {
		out.head(counter.name, "counter", counter.help)
		out.one(counter.name, "", float64(counter.value))
	}
	service := p.enforcer.Service()
	for _, gauge := range []struct {
		name, help string
		value      time.Duration
	}{
		{"lag_seconds", "Most that the server was behind what it was charged, with these parameters.",
			service.Lag},
		{"charged_seconds", "Cost of calls that were answered, with these parameters.", service.Cost},
		{"busy_seconds", "Turns of the same calls at the server.", service.Busy},
	} {
		out.head(gauge.name, "gauge", gauge.help)
		out.one(gauge.name, "", gauge.value.Seconds())
	}
	p.workloadMetrics(&out)
	return out.Bytes()
}

func (p *Proxy) workloadMetrics(out *page) {
	labels := make([]string, len(p.workloads))
	for i, w := range p.workloads {
		labels[i] = fmt.Sprintf("workload=%q", w.name)
	}
	out.head("longest_response_seconds", "gauge", "Longest response, with these parameters.")
	for i, w := range p.workloads {
		out.one("longest_response_seconds", labels[i], w.counts.longest.Seconds())
	}
	stats := p.enforcer.Stats()
	for _, series := range []struct {
		name, kind, help string
		value            func(i int) float64
	}{
		{"queued", "gauge", "Calls that wait.", func(i int) float64 { return float64(stats[i].Queued) }},
		{"connections", "gauge", "Connections of the workload's clients.",
			func(i int) float64 { return float64(p.workloads[i].budget.connections) }},
		{"memory_bytes", "gauge", "Memory that the workload's clients take.",
			func(i int) float64 { return float64(p.workloads[i].budget.memory()) }},
		{"connections_refused_total", "counter", "Connections beyond those that the workload may have.",
			func(i int) float64 { return float64(p.workloads[i].counts.refused) }},
		{"weight", "gauge", "Weight in force.", func(i int) float64 { return stats[i].Weight }},
		{"held_total", "counter", "Calls that found no room in their token buckets.",
			func(i int) float64 { return float64(stats[i].Held) }},
		{"out_of_profile_total", "counter", "Calls sent on without tokens.",
			func(i int) float64 { return float64(stats[i].OutOfProfile) }},
		{"work_seconds_total", "counter", "Estimated work of calls sent on, in seconds of the device.",
			func(i int) float64 { return stats[i].Work }},
	} {
		out.head(series.name, series.kind, series.help)
		for i := range p.workloads {
			out.one(series.name, labels[i], series.value(i))
		}
	}
	out.head("requests_total", "counter", "Calls that were answered.")
	for i, w := range p.workloads {
		for kind, name := range kinds {
			out.one("requests_total", labels[i]+`,kind="`+name+`"`, float64(w.counts.requests[kind]))
		}
	}
	out.head("bytes_total", "counter", "Bytes that answered calls asked to read or write.")
	for i, w := range p.workloads {
		for _, kind := range []nfs3.Kind{nfs3.Read, nfs3.Write} {
			out.one("bytes_total", labels[i]+`,kind="`+kinds[kind]+`"`, float64(w.counts.bytes[kind]))
		}
	}
	for _, series := range []struct {
		name, help string
		of         func(*workloadCounts) *histogram
	}{
		{"wait_seconds", "From a call's arrival until it was sent on.",
			func(c *workloadCounts) *histogram { return &c.waited }},
		{"response_seconds", "From a call's arrival to the end of its reply.",
			func(c *workloadCounts) *histogram { return &c.response }},
		{"server_seconds", "From when a call was sent on to the end of its reply.",
			func(c *workloadCounts) *histogram { return &c.server }},
	} {
		out.head(series.name, "histogram", series.help)
		for i, w := range p.workloads {
			out.histogram(series.name, labels[i], series.of(&w.counts))
		}
	}
}
