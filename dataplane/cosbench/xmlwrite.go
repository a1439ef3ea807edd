package cosbench

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// WriteXML writes a workload as it was understood: everything inherited, every default filled in,
// and *** for secrets. Reading it again gives the same workload but for those.
func WriteXML(to io.Writer, w *Workload) error {
	out := &xmlWriter{out: bufio.NewWriter(to)}
	out.line(0, `<?xml version="1.0" encoding="UTF-8"?>`)
	out.open(0, "workload", "name", w.Name, "description", w.Description, "trigger", w.Trigger, "config", "")
	out.accesses(1, w.Auth, w.Storage)
	out.open(1, "workflow", "config", "")
	for i := range w.Stages {
		out.stage(&w.Stages[i])
	}
	out.line(1, "</workflow>")
	out.line(0, "</workload>")
	return out.out.Flush()
}

type xmlWriter struct{ out *bufio.Writer }

// line writes a line; the error of a write comes with Flush.
func (x *xmlWriter) line(depth int, text string) {
	_, _ = x.out.WriteString(strings.Repeat("    ", depth) + text + "\n")
}

func (x *xmlWriter) tag(depth int, end, name string, pairs []string) {
	var text strings.Builder
	text.WriteString("<" + name)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i] == "trigger" && pairs[i+1] == "" || pairs[i] == "driver" && pairs[i+1] == "" {
			continue
		}
		_, _ = fmt.Fprintf(&text, ` %s="`, pairs[i])  // a Builder never fails
		_ = xml.EscapeText(&text, []byte(pairs[i+1])) // likewise
		text.WriteByte('"')
	}
	x.line(depth, text.String()+end)
}

func (x *xmlWriter) open(depth int, name string, pairs ...string) { x.tag(depth, ">", name, pairs) }

func (x *xmlWriter) accesses(depth int, auth, storage Access) {
	for _, a := range []struct {
		name string
		Access
	}{{"auth", auth}, {"storage", storage}} {
		pairs := []string{"type", a.Type}
		if a.Config != "" {
			pairs = append(pairs, "config", a.Config.String())
		}
		x.tag(depth, "/>", a.name, pairs)
	}
}

func (x *xmlWriter) stage(s *Stage) {
	x.open(2, "workstage", "name", s.Name, "closuredelay", strconv.Itoa(s.ClosureDelay), "trigger", s.Trigger,
		"config", "")
	x.accesses(3, s.Auth, s.Storage)
	for i := range s.Works {
		x.work(&s.Works[i])
	}
	x.line(2, "</workstage>")
}

func (x *xmlWriter) work(w *Work) {
	x.open(3, "work", "name", w.Name, "type", w.Type, "workers", strconv.Itoa(w.Workers),
		"interval", strconv.Itoa(w.Interval), "division", w.Division, "runtime", strconv.Itoa(w.Runtime),
		"rampup", strconv.Itoa(w.Rampup), "rampdown", strconv.Itoa(w.Rampdown), "afr", strconv.Itoa(w.AFR),
		"totalOps", strconv.Itoa(w.TotalOps), "totalBytes", strconv.FormatInt(w.TotalBytes, 10),
		"driver", w.Driver, "config", w.Config.String())
	x.accesses(4, w.Auth, w.Storage)
	for _, o := range w.Operations {
		x.tag(4, "/>", "operation", []string{"type", o.Type, "ratio", strconv.Itoa(o.Ratio),
			"division", o.Division, "config", o.Config.String(), "id", o.ID})
	}
	x.line(3, "</work>")
}
