// Package cosbench drives object stores with COSBench's workloads. It reads the same XML with the
// same meaning, measures by the same rule and writes the same archive, from one process.
//
// The semantics are those of COSBench 0.4.2; docs/cosbench.md lists them and the few differences.
package cosbench

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"hotbed/dataplane/cosbench/store"
)

// Workload is a workload with all inherited values and defaults filled in. Its XML reads back as
// the same workload, except for secrets, which are *** in XML and JSON.
type Workload struct {
	XMLName     xml.Name `json:"-" xml:"workload"`
	Name        string   `json:"name" xml:"name,attr"`
	Description string   `json:"description,omitempty" xml:"description,attr"`
	Auth        Access   `json:"auth" xml:"auth"`
	Storage     Access   `json:"storage" xml:"storage"`
	Stages      []Stage  `json:"stages" xml:"workflow>workstage"`
}

// Access is an auth or a storage element.
type Access struct {
	Type   string       `json:"type" xml:"type,attr"`
	Config store.Config `json:"config" xml:"config,attr,omitempty"`
	line   int
}

// Stage is a workstage: works that run in parallel.
type Stage struct {
	ID           string `json:"id" xml:"-"` // for example s3-main
	Name         string `json:"name" xml:"name,attr"`
	ClosureDelay int    `json:"closuredelay_s" xml:"closuredelay,attr"` // sleep after its works, s
	Auth         Access `json:"auth" xml:"auth"`
	Storage      Access `json:"storage" xml:"storage"`
	Works        []Work `json:"works" xml:"work"`
}

// The types of works. All but Normal become one operation that each worker does once.
const (
	Normal  = "normal"
	Init    = "init"
	Prepare = "prepare"
	Cleanup = "cleanup"
	Dispose = "dispose"
	Delay   = "delay"
)

var workTypes = []string{Normal, Init, Prepare, Cleanup, Dispose, Delay}

// operationTypes are the types of a normal work's operations.
var operationTypes = []string{"read", "write", "list", "delete", Init, Prepare, Cleanup, Dispose}

// The ways to divide names among workers.
const (
	DivideNone       = "none"
	DivideContainers = "container"
	DivideObjects    = "object"
)

var divisions = []string{DivideNone, DivideContainers, DivideObjects}

// Work is a number of workers that draw operations until a limit.
type Work struct {
	Name       string       `json:"name" xml:"name,attr"`
	Type       string       `json:"type" xml:"type,attr"`
	Workers    int          `json:"workers" xml:"workers,attr"`
	Interval   int          `json:"interval_s" xml:"interval,attr"` // between the rows of the stage's series, s
	Division   string       `json:"division" xml:"division,attr"`
	Runtime    int          `json:"runtime_s" xml:"runtime,attr"` // measured time, s; 0: no limit
	Rampup     int          `json:"rampup_s" xml:"rampup,attr"`
	Rampdown   int          `json:"rampdown_s" xml:"rampdown,attr"`
	AFR        int          `json:"afr" xml:"afr,attr"` // acceptable failures per million samples
	TotalOps   int          `json:"total_ops" xml:"totalOps,attr"`
	TotalBytes int64        `json:"total_bytes" xml:"totalBytes,attr"`
	Driver     string       `json:"driver,omitempty" xml:"driver,attr,omitempty"`
	Config     store.Config `json:"config" xml:"config,attr"`
	Auth       Access       `json:"auth" xml:"auth"`
	Storage    Access       `json:"storage" xml:"storage"`
	Operations []Operation  `json:"operations" xml:"operation"`
	element    *element
}

// Operation is one kind of request and its share of all.
type Operation struct {
	ID       string       `json:"id" xml:"id,attr"` // op1 and so on within the stage
	Type     string       `json:"type" xml:"type,attr"`
	Name     string       `json:"name" xml:"-"`
	Ratio    int          `json:"ratio_percent" xml:"ratio,attr"`
	Division string       `json:"division" xml:"division,attr"`
	Config   store.Config `json:"config" xml:"config,attr"`
	element  *element
}

// SampleType returns the type of the operation's requests: a prepare writes, a cleanup deletes.
func (o *Operation) SampleType() string {
	switch o.Type {
	case Init, Prepare:
		return "write"
	case Cleanup, Dispose:
		return "delete"
	}
	return o.Type
}

// Label returns the operation's name in the archive: prepare-write, read.
func (o *Operation) Label() string {
	if sample := o.SampleType(); sample != o.Name {
		return o.Name + "-" + sample
	}
	return o.Name
}

// Sleeps is true if the stage is only a pause of its closuredelay.
func (s *Stage) Sleeps() bool { return s.Name == Delay && s.ClosureDelay > 0 }

// Fault is a mistake in a workload's XML.
type Fault struct {
	Line    int    // from 1; 0: the file as a whole
	Element string // for example work "main"; empty: no element has begun
	Message string
}

func (f *Fault) Error() string {
	where := f.Element
	if f.Line > 0 {
		where = strings.TrimSuffix(fmt.Sprintf("line %d, %s", f.Line, f.Element), ", ")
	}
	return strings.TrimPrefix(where+": "+f.Message, ": ")
}

// element is one element of the file as it was written.
type element struct {
	name       string
	line       int
	attributes map[string]string
	children   []*element
}

// title names the element in a message; the file itself has no title.
func (e *element) title() string {
	for _, attribute := range []string{"name", "type"} {
		if value := e.attributes[attribute]; value != "" {
			return fmt.Sprintf("%s %q", e.name, value)
		}
	}
	return e.name
}

// fault returns a mistake of the element.
func (e *element) fault(format string, args ...any) *Fault { return e.at(e.line, format, args...) }

// at returns a mistake at a line of the element's content.
func (e *element) at(line int, format string, args ...any) *Fault {
	return &Fault{line, e.title(), fmt.Sprintf(format, args...)}
}

// all returns the children of a name.
func (e *element) all(name string) []*element {
	var found []*element
	for _, child := range e.children {
		if child.name == name {
			found = append(found, child)
		}
	}
	return found
}

// rule describes the allowed contents of an element. COSBench's own reader ignores unknown contents.
// This reader refuses them, because a setting that silently has no effect spoils a measurement.
type rule struct {
	attributes []string
	required   string // an attribute
	children   []string
	many       string // the child that may be repeated
	needed     string // the child that is required
}

var grammar = map[string]rule{
	"": {children: []string{"workload"}, needed: "workload"},
	"workload": {attributes: []string{"name", "description", "config"},
		required: "name", children: []string{"auth", "storage", "workflow"}, needed: "workflow"},
	"auth":     {attributes: []string{"type", "config"}, required: "type"},
	"storage":  {attributes: []string{"type", "config"}, required: "type"},
	"workflow": {attributes: []string{"config"}, children: []string{"workstage"}, many: "workstage", needed: "workstage"},
	"workstage": {attributes: []string{"name", "closuredelay", "config"},
		required: "name", children: []string{"auth", "storage", "work"}, many: "work", needed: "work"},
	"work": {attributes: []string{"name", "type", "workers", "interval", "division", "runtime", "rampup",
		"rampdown", "totalOps", "totalBytes", "afr", "driver", "config"},
		children: []string{"auth", "storage", "operation"}, many: "operation"},
	"operation": {attributes: []string{"type", "ratio", "division", "config", "id"}, required: "type"},
}

// maxBytes is larger than any workload that a person writes.
const maxBytes = 16 << 20

// readXML reads a file into elements and checks each element's contents against its rule.
func readXML(reader io.Reader) (*element, error) {
	text, err := io.ReadAll(io.LimitReader(reader, maxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxBytes {
		return nil, &Fault{Message: fmt.Sprintf("longer than %d MiB: this is no workload", maxBytes>>20)}
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) // a byte-order mark is no content
	decoder := xml.NewDecoder(bytes.NewReader(text))
	decoder.CharsetReader = func(charset string, input io.Reader) (io.Reader, error) {
		if strings.EqualFold(charset, "US-ASCII") || strings.EqualFold(charset, "ASCII") {
			return input, nil
		}
		return nil, fmt.Errorf("the encoding %s is not supported; save the file as UTF-8", charset)
	}
	file := &element{}
	if err := file.fill(decoder); err != nil {
		return nil, err
	}
	return file.children[0], nil
}

// fill reads the element's content up to its end, or to the file's end.
func (e *element) fill(decoder *xml.Decoder) error {
	for {
		line, _ := decoder.InputPos()
		token, err := decoder.Token()
		switch {
		case errors.Is(err, io.EOF):
			return e.complete()
		case err != nil:
			line, _ = decoder.InputPos()
			return e.at(line, "not well-formed XML: %v", strings.TrimPrefix(err.Error(), "xml: "))
		}
		switch t := token.(type) {
		case xml.StartElement:
			child, err := e.open(t, line)
			if err == nil {
				err = child.fill(decoder)
			}
			if err != nil {
				return err
			}
		case xml.EndElement:
			return e.complete()
		case xml.CharData:
			if text := strings.TrimSpace(string(t)); text != "" {
				return e.at(line, "there is text (%.20q); everything is written in attributes", text)
			}
		case xml.Directive:
			return e.at(line, "document types and other <!...> directives are not supported; take it out")
		}
	}
}

// open adds a child if the element may have it here.
func (e *element) open(t xml.StartElement, line int) (*element, error) {
	name, allowed := t.Name.Local, grammar[e.name].children
	if !slices.Contains(allowed, name) {
		return nil, e.at(line, "<%s> cannot be here; allowed: %s", name, cmp.Or(strings.Join(allowed, ", "), "nothing"))
	}
	child := &element{name: name, line: line, attributes: map[string]string{}}
	e.children = append(e.children, child)
	return child, child.read(t.Attr)
}

func (e *element) read(attributes []xml.Attr) error {
	allowed := grammar[e.name].attributes
	for _, a := range attributes {
		if _, twice := e.attributes[a.Name.Local]; twice {
			return e.fault("the attribute %s is there twice", a.Name.Local)
		}
		e.attributes[a.Name.Local] = a.Value
	}
	for _, a := range attributes {
		if a.Name.Space != "" || !slices.Contains(allowed, a.Name.Local) {
			return e.fault("the attribute %s is not known; allowed: %s", a.Name.Local, strings.Join(allowed, ", "))
		}
	}
	if name := grammar[e.name].required; name != "" && e.attributes[name] == "" {
		return e.fault("the attribute %s is missing", name)
	}
	return nil
}

// complete checks the number of the children.
func (e *element) complete() error {
	r := grammar[e.name]
	for _, name := range r.children {
		found := e.all(name)
		switch {
		case len(found) == 0 && name == r.needed:
			return e.fault("there is no <%s> in it", name)
		case len(found) > 1 && name != r.many:
			return found[1].fault("there is a second <%s>; one is allowed", name)
		}
	}
	return nil
}

// Read reads a workload. A mistake in the file is a *Fault.
func Read(reader io.Reader) (*Workload, error) {
	root, err := readXML(reader)
	if err != nil {
		return nil, err
	}
	var p parser
	w := p.workload(root)
	if p.fault != nil {
		return nil, p.fault
	}
	return w, nil
}

// parser interprets elements. It keeps the first fault and continues with zero values.
type parser struct{ fault *Fault }

func (p *parser) refuse(e *element, format string, args ...any) {
	if p.fault == nil {
		p.fault = e.fault(format, args...)
	}
}

func (p *parser) workload(e *element) *Workload {
	w := &Workload{Name: p.label(e), Description: e.attributes["description"]}
	none := Access{Type: "none", line: e.line}
	w.Auth, w.Storage = p.accesses(e, none, none)
	workflow := e.all("workflow")[0]
	config := p.config(workflow, p.config(e, nil))
	for i, child := range workflow.all("workstage") {
		w.Stages = append(w.Stages, p.stage(child, i+1, w, config))
	}
	return w
}

func (p *parser) stage(e *element, number int, parent *Workload, config store.Config) Stage {
	s := Stage{Name: p.label(e)}
	s.ID = fmt.Sprintf("s%d-%s", number, s.Name)
	s.ClosureDelay = p.whole(e, "closuredelay", 0, 0)
	s.Auth, s.Storage = p.accesses(e, parent.Auth, parent.Storage)
	config = p.config(e, config)
	operations := 0
	for _, child := range e.all("work") {
		work := p.work(child, &s, config)
		for i := range work.Operations {
			operations++
			work.Operations[i].ID = fmt.Sprintf("op%d", operations)
		}
		s.Works = append(s.Works, work)
		if s.Sleeps() && work.Type != Delay { // COSBench runs no works of such a stage
			p.refuse(child, "a workstage named delay with a closuredelay runs no works; "+
				"give the workstage another name")
		}
	}
	return s
}

func (p *parser) work(e *element, parent *Stage, config store.Config) Work {
	w := Work{Type: p.among(e, "type", Normal, workTypes), Driver: e.attributes["driver"], element: e}
	if w.Name = w.Type; w.Type == Normal || e.attributes["name"] != "" {
		w.Name = p.label(e)
	}
	w.Config = p.config(e, config)
	p.limits(e, &w)
	w.Auth, w.Storage = p.accesses(e, parent.Auth, parent.Storage)
	if w.Type == Normal {
		p.operations(e, &w)
	} else {
		w.makeSpecial()
	}
	p.nameOperations(&w)
	return w
}

func (p *parser) limits(e *element, w *Work) {
	missing := 0
	if w.Type == Delay {
		missing = 1
	}
	w.Workers = p.whole(e, "workers", 1, missing)
	w.Interval = p.whole(e, "interval", 1, 5)
	w.Runtime = p.whole(e, "runtime", 0, 0)
	w.Rampup = p.whole(e, "rampup", 0, 0)
	w.Rampdown = p.whole(e, "rampdown", 0, 0)
	w.TotalOps = p.whole(e, "totalOps", 0, 0)
	w.AFR = p.whole(e, "afr", 0, 200_000)
	bytes := cmp.Or(e.attributes["totalBytes"], "0")
	var err error
	if w.TotalBytes, err = strconv.ParseInt(bytes, 10, 64); err != nil || w.TotalBytes < 0 {
		p.refuse(e, "totalBytes=%q is not a whole number from 0", bytes)
	}
	w.Division = p.among(e, "division", DivideNone, divisions)
	switch {
	case w.Workers == 0:
		p.refuse(e, "the attribute workers is missing: how many workers do this work")
	case w.Workers > 10_000:
		p.refuse(e, "workers=%d is more than the 10000 that one driver runs", w.Workers)
	case w.AFR > 1_000_000:
		p.refuse(e, "afr=%d is not a number of failures per million, 0 to 1000000", w.AFR)
	}
}

// makeSpecial makes init, prepare, cleanup, dispose and delay one operation that each worker does
// once, whatever operations were written.
func (w *Work) makeSpecial() {
	w.Runtime, w.TotalBytes = 0, 0
	var before store.Config
	switch w.Type {
	case Init, Dispose:
		before, w.Division = store.Config{{Key: "objects", Value: "r(0,0)"}, {Key: "sizes", Value: "c(0)B"}}, DivideContainers
	case Prepare:
		before, w.Division = store.Config{{Key: "createContainer", Value: "false"}}, DivideObjects
	case Cleanup:
		before, w.Division = store.Config{{Key: "deleteContainer", Value: "false"}}, DivideObjects
	case Delay:
		w.Workers, w.Division, w.Config = 1, DivideNone, nil
	}
	w.TotalOps = w.Workers
	if w.element.attributes["afr"] == "" {
		w.AFR = 0
	}
	w.Operations = []Operation{{Type: w.Type, Ratio: 100, Division: w.Division, Config: before.With(w.Config),
		element: w.element}}
}

func (p *parser) operations(e *element, w *Work) {
	if w.Runtime == 0 && w.TotalOps == 0 && w.TotalBytes == 0 {
		p.refuse(e, "there is no limit: give it a runtime, totalOps or totalBytes")
	}
	// COSBench divides both among its workers in whole numbers, and 0 means no limit.
	for _, limit := range []int64{int64(w.TotalOps), w.TotalBytes} {
		if limit > 0 && limit < int64(w.Workers) {
			p.refuse(e, "a total of %d cannot be divided among %d workers; make it as many at least", limit, w.Workers)
		}
	}
	if len(e.all("operation")) == 0 {
		p.refuse(e, "there is no <operation> in it; a work of type normal needs one")
	}
	sum := 0
	for _, child := range e.all("operation") {
		o := Operation{Ratio: p.whole(child, "ratio", 0, 100), Config: p.config(child, w.Config),
			Type:     p.among(child, "type", "", operationTypes),
			Division: p.among(child, "division", w.Division, divisions), element: child}
		if o.Ratio > 100 {
			p.refuse(child, "ratio=%d is not a percentage", o.Ratio)
		}
		if o.Ratio > 0 {
			sum += o.Ratio
			w.Operations = append(w.Operations, o)
		}
	}
	if sum != 100 {
		p.refuse(e, "the ratios of its operations sum to %d; make them 100", sum)
	}
}

// nameOperations gives each operation the name in its config, else its type, numbered if the work has
// several of the type (1-read, 2-read).
func (p *parser) nameOperations(w *Work) {
	count, numbered := map[string]int{}, false
	for _, o := range w.Operations {
		count[o.Type]++
		numbered = numbered || count[o.Type] > 1
	}
	number := map[string]int{}
	for i := range w.Operations {
		o := &w.Operations[i]
		number[o.Type]++
		o.Name = o.Type
		if numbered {
			o.Name = fmt.Sprintf("%d-%s", number[o.Type], o.Type)
		}
		o.Name = o.Config.Text("name", o.Name)
		if message := badLabel(o.Name); message != "" {
			p.refuse(o.element, "the name %q in its config %s", o.Name, message)
		}
	}
}

// accesses reads the auth and the storage of an element, or takes the parent's.
func (p *parser) accesses(e *element, auth, storage Access) (Access, Access) {
	for _, child := range e.all("auth") {
		auth = Access{child.attributes["type"], p.config(child, nil), child.line}
	}
	for _, child := range e.all("storage") {
		storage = Access{child.attributes["type"], p.config(child, nil), child.line}
	}
	return auth, storage
}

// config returns the element's config on top of its parent's.
func (p *parser) config(e *element, parent store.Config) store.Config {
	config, err := store.ParseConfig(e.attributes["config"])
	if err != nil {
		p.refuse(e, "%v", err)
	}
	return parent.With(config)
}

func (p *parser) among(e *element, name, missing string, allowed []string) string {
	value := cmp.Or(e.attributes[name], missing)
	if !slices.Contains(allowed, value) {
		p.refuse(e, "%s %q is not supported; allowed: %s", name, value, strings.Join(allowed, ", "))
	}
	return value
}

func (p *parser) whole(e *element, name string, least, missing int) int {
	text := e.attributes[name]
	if text == "" {
		return missing
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil || value < int64(least) || value > math.MaxInt32 {
		p.refuse(e, "%s=%q is not a whole number from %d", name, text, least)
		return missing
	}
	return int(value)
}

// label reads a name that may be part of a file's name and of a row of CSV.
func (p *parser) label(e *element) string {
	name := e.attributes["name"]
	if name == "" {
		p.refuse(e, "the attribute name is missing")
	} else if message := badLabel(name); message != "" {
		p.refuse(e, "the name %s", message)
	}
	return name
}

// badLabel returns the mistake in a name, or "".
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
