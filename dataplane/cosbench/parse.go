package cosbench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Read reads a workload. An error of the file's is a *Fault.
func Read(reader io.Reader) (*Workload, error) {
	root, err := readXML(reader)
	if err != nil {
		return nil, err
	}
	return readWorkload(root)
}

func readWorkload(e *element) (*Workload, error) {
	w := &Workload{Description: e.attributes["description"], Trigger: e.attributes["trigger"]}
	var err error
	if w.Name, err = e.label("name"); err != nil {
		return nil, err
	}
	none := Access{Type: "none", line: e.line}
	if w.Auth, w.Storage, err = e.accesses(none, none); err != nil {
		return nil, err
	}
	config, err := e.config("")
	if err != nil {
		return nil, err
	}
	workflow := e.all("workflow")[0]
	if config, err = workflow.config(config); err != nil {
		return nil, err
	}
	for i, child := range workflow.all("workstage") {
		stage, err := readStage(child, i+1, w, config)
		if err != nil {
			return nil, err
		}
		w.Stages = append(w.Stages, stage)
	}
	return w, nil
}

func readStage(e *element, number int, parent *Workload, config Config) (Stage, error) {
	s := Stage{Trigger: e.attributes["trigger"], element: *e}
	var err error
	if s.Name, err = e.label("name"); err != nil {
		return s, err
	}
	s.ID = fmt.Sprintf("s%d-%s", number, s.Name)
	if s.ClosureDelay, err = e.whole("closuredelay", 0, 0); err != nil {
		return s, err
	}
	if s.Auth, s.Storage, err = e.accesses(parent.Auth, parent.Storage); err != nil {
		return s, err
	}
	if config, err = e.config(config); err != nil {
		return s, err
	}
	operations := 0
	for _, child := range e.all("work") {
		work, err := readWork(child, &s, config)
		if err != nil {
			return s, err
		}
		for i := range work.Operations {
			operations++
			work.Operations[i].ID = fmt.Sprintf("op%d", operations)
		}
		s.Works = append(s.Works, work)
	}
	return s, s.checkDelay()
}

// checkDelay sees to it that a stage named delay only sleeps: COSBench runs none of its works.
func (s *Stage) checkDelay() error {
	if !s.Sleeps() {
		return nil
	}
	for _, work := range s.Works {
		if work.Type != Delay {
			return work.element.fault("a workstage named delay with a closuredelay runs no works; " +
				"give the workstage another name")
		}
	}
	return nil
}

// Sleeps says whether the stage is but a pause of its closuredelay.
func (s *Stage) Sleeps() bool { return s.Name == Delay && s.ClosureDelay > 0 }

func readWork(e *element, parent *Stage, config Config) (Work, error) {
	w := Work{Type: e.either("type", Normal), Driver: e.attributes["driver"], element: *e}
	var err error
	if !slices.Contains(workTypes, w.Type) {
		return w, e.fault("type %q is not supported; allowed: %s", w.Type, strings.Join(workTypes, ", "))
	}
	if w.Type != Normal && e.attributes["name"] == "" {
		w.Name = w.Type
	} else if w.Name, err = e.label("name"); err != nil {
		return w, err
	}
	if w.Config, err = e.config(config); err != nil {
		return w, err
	}
	if err := w.readLimits(e); err != nil {
		return w, err
	}
	if w.Auth, w.Storage, err = e.accesses(parent.Auth, parent.Storage); err != nil {
		return w, err
	}
	if w.Type != Normal {
		return w, w.makeSpecial()
	}
	return w, w.readOperations(e)
}

func (w *Work) readLimits(e *element) error {
	missing := 0
	if w.Type == Delay {
		missing = 1
	}
	numbers := []struct {
		name           string
		least, missing int
		into           *int
	}{
		{"workers", 1, missing, &w.Workers}, {"interval", 1, 5, &w.Interval},
		{"runtime", 0, 0, &w.Runtime}, {"rampup", 0, 0, &w.Rampup}, {"rampdown", 0, 0, &w.Rampdown},
		{"totalOps", 0, 0, &w.TotalOps}, {"afr", 0, 200_000, &w.AFR},
	}
	var err error
	for _, n := range numbers {
		if *n.into, err = e.whole(n.name, n.least, n.missing); err != nil {
			return err
		}
	}
	bytes := e.either("totalBytes", "0")
	if w.TotalBytes, err = strconv.ParseInt(bytes, 10, 64); err != nil || w.TotalBytes < 0 {
		return e.fault("totalBytes=%q is not a whole number from 0", bytes)
	}
	w.Division = e.either("division", DivideNone)
	switch {
	case !slices.Contains(divisions, w.Division):
		return e.fault("division %q is not supported; allowed: %s", w.Division, strings.Join(divisions, ", "))
	case w.Workers == 0:
		return e.fault("the attribute workers is missing: how many workers do this work")
	case w.Workers > 10_000:
		return e.fault("workers=%d is more than the 10000 that one driver runs", w.Workers)
	case w.AFR > 1_000_000:
		return e.fault("afr=%d is not a number of failures per million, 0 to 1000000", w.AFR)
	}
	return nil
}

// makeSpecial makes init, prepare, cleanup, dispose and delay one operation that each worker does
// once, whatever operations were written.
func (w *Work) makeSpecial() error {
	w.Runtime, w.TotalBytes = 0, 0
	before, operation := Config(""), Operation{Type: w.Type, Name: w.Type, Ratio: 100, element: w.element}
	switch w.Type {
	case Init, Dispose:
		before, w.Division = "objects=r(0,0);sizes=c(0)B", DivideContainers
	case Prepare:
		before, w.Division = "createContainer=false", DivideObjects
	case Cleanup:
		before, w.Division = "deleteContainer=false", DivideObjects
	case Delay:
		w.Workers, w.Division, w.Config = 1, DivideNone, ""
	}
	w.TotalOps = w.Workers
	if w.element.attributes["afr"] == "" {
		w.AFR = 0
	}
	operation.Division = w.Division
	var err error
	operation.Config, err = inherit(before, w.Config)
	w.Operations = []Operation{operation}
	if err == nil {
		err = w.nameOperations()
	}
	return err
}

// operationTypes are what a work may do.
var operationTypes = []string{"read", "write", "list", "filewrite", "delete", Init, Prepare, Cleanup, Dispose}

func (w *Work) readOperations(e *element) error {
	if w.Runtime == 0 && w.TotalOps == 0 && w.TotalBytes == 0 {
		return e.fault("there is no limit: give it a runtime, totalOps or totalBytes")
	}
	// COSBench divides both among its workers in whole numbers, and takes 0 for no limit.
	if w.TotalOps > 0 && w.TotalOps < w.Workers {
		return e.fault("totalOps=%d cannot be divided among %d workers; make it as many at least",
			w.TotalOps, w.Workers)
	}
	if w.TotalBytes > 0 && w.TotalBytes < int64(w.Workers) {
		return e.fault("totalBytes=%d cannot be divided among %d workers; make it as many at least",
			w.TotalBytes, w.Workers)
	}
	if len(e.all("operation")) == 0 {
		return e.fault("there is no <operation> in it; a work of type normal needs one")
	}
	sum := 0
	for _, child := range e.all("operation") {
		o := Operation{Type: child.attributes["type"], Division: child.either("division", w.Division), element: *child}
		var err error
		if o.Ratio, err = child.whole("ratio", 0, 100); err != nil {
			return err
		}
		if o.Config, err = child.config(w.Config); err != nil {
			return err
		}
		switch {
		case !slices.Contains(operationTypes, o.Type):
			return child.fault("type %q is not supported; allowed: %s", o.Type, strings.Join(operationTypes, ", "))
		case !slices.Contains(divisions, o.Division):
			return child.fault("division %q is not supported; allowed: %s", o.Division, strings.Join(divisions, ", "))
		case o.Ratio > 100:
			return child.fault("ratio=%d is not a percentage", o.Ratio)
		}
		if o.Ratio == 0 {
			continue
		}
		sum += o.Ratio
		w.Operations = append(w.Operations, o)
	}
	if sum != 100 {
		return e.fault("the ratios of its operations sum to %d; make them 100", sum)
	}
	return w.nameOperations()
}

// nameOperations gives each operation the name that its config says, else its type, numbered where
// the work has several of the type (1-read, 2-read).
func (w *Work) nameOperations() error {
	count, numbered := map[string]int{}, false
	for _, o := range w.Operations {
		count[o.Type]++
		numbered = numbered || count[o.Type] > 1
	}
	number := map[string]int{}
	for i := range w.Operations {
		o := &w.Operations[i]
		number[o.Type]++
		settings, err := splitConfig(string(o.Config))
		if err != nil {
			return o.element.fault("%v", err)
		}
		o.Name = o.Type
		if numbered {
			o.Name = fmt.Sprintf("%d-%s", number[o.Type], o.Type)
		}
		for _, s := range settings {
			if s.key == "name" {
				o.Name = s.value
			}
		}
		if message := badLabel(o.Name); message != "" {
			return o.element.fault("the name %q in its config %s", o.Name, message)
		}
	}
	return nil
}

// accesses reads the auth and the storage of an element, or takes the parent's.
func (e *element) accesses(auth, storage Access) (Access, Access, error) {
	for _, a := range []struct {
		name string
		into *Access
	}{{"auth", &auth}, {"storage", &storage}} {
		for _, child := range e.all(a.name) {
			config, err := child.config("")
			if err != nil {
				return auth, storage, err
			}
			*a.into = Access{child.attributes["type"], config, child.line}
		}
	}
	return auth, storage, nil
}

func (e *element) either(name, missing string) string {
	if value := e.attributes[name]; value != "" {
		return value
	}
	return missing
}

// config is the element's config on top of its parent's.
func (e *element) config(parent Config) (Config, error) {
	config, err := inherit(parent, Config(e.attributes["config"]))
	if err != nil {
		return "", e.fault("%v", err)
	}
	return config, nil
}

func (e *element) whole(name string, least, missing int) (int, error) {
	text, found := e.attributes[name]
	if !found || text == "" {
		return missing, nil
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil || value < int64(least) || value > math.MaxInt32 {
		return 0, e.fault("%s=%q is not a whole number from %d", name, text, least)
	}
	return int(value), nil
}

// label is a name that may be part of a file's name and of a row of CSV.
func (e *element) label(attribute string) (string, error) {
	name := e.attributes[attribute]
	if name == "" {
		return "", e.fault("the attribute %s is missing", attribute)
	}
	if message := badLabel(name); message != "" {
		return "", e.fault("the %s %s", attribute, message)
	}
	return name, nil
}

// badLabel says what is wrong with a name; nothing: it is fine.
func badLabel(name string) string {
	const longest = 100
	switch {
	case name == "":
		return "is empty"
	case strings.TrimSpace(name) != name:
		return "begins or ends with a space, which rows of CSV lose"
	case len(name) > longest:
		return fmt.Sprintf("is longer than %d bytes", longest)
	case strings.ContainsAny(name, ",;\"/\\") || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "has a character that names of files and columns cannot have (, ; \" / \\ or a control character)"
	}
	return ""
}
