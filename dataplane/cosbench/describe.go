package cosbench

import (
	"fmt"
	"strings"
)

// Describe tells a person what the plan will do, a line a stage, a work, an operation.
func (p *Plan) Describe() string {
	var text strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&text, format+"\n", args...) } // never fails
	line("%s: storage %s, auth %s", p.Name, p.Storage.Type, p.Auth.Type)
	for i := range p.Workload.Stages {
		s := &p.Workload.Stages[i]
		line("%s%s", s.ID, after(s.ClosureDelay))
		if s.Sleeps() {
			continue
		}
		for _, w := range s.Works {
			line("  %s (%s): %d workers%s", w.Name, w.Type, w.Workers, w.limits())
			for _, o := range w.Operations {
				line("    %3d%% %s: %s", o.Ratio, o.Label(), o.Config)
			}
		}
	}
	return text.String()
}

func after(delay int) string {
	if delay == 0 {
		return ""
	}
	return fmt.Sprintf(", then a pause of %d s", delay)
}

func (w *Work) limits() string {
	var limits []string
	if w.Runtime > 0 {
		limits = append(limits, fmt.Sprintf("%d s (after %d s, before %d s)", w.Runtime, w.Rampup, w.Rampdown))
	}
	if w.Type == Normal && w.TotalOps > 0 {
		limits = append(limits, fmt.Sprintf("%d operations", w.TotalOps))
	}
	if w.TotalBytes > 0 {
		limits = append(limits, fmt.Sprintf("%d bytes", w.TotalBytes))
	}
	if len(limits) == 0 {
		return ""
	}
	return ", " + strings.Join(limits, " or ")
}
