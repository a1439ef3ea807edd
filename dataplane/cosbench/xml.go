package cosbench

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Fault is a mistake in a workload's XML: where it is and what to do about it.
type Fault struct {
	Line    int    // from 1; 0: the file as a whole
	Element string // such as work "main"; empty: no element has begun
	Message string
}

func (f *Fault) Error() string {
	switch {
	case f.Line == 0:
		return f.Message
	case f.Element == "":
		return fmt.Sprintf("line %d: %s", f.Line, f.Message)
	}
	return fmt.Sprintf("line %d, %s: %s", f.Line, f.Element, f.Message)
}

// element is one element of the file as it was written.
type element struct {
	name       string
	line       int
	attributes map[string]string
	children   []*element
}

// title names the element in a message.
func (e *element) title() string {
	for _, attribute := range []string{"name", "type"} {
		if value := e.attributes[attribute]; value != "" {
			return fmt.Sprintf("%s %q", e.name, value)
		}
	}
	return e.name
}

func (e *element) fault(format string, args ...any) *Fault {
	return &Fault{e.line, e.title(), fmt.Sprintf(format, args...)}
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

// rule is what an element may hold. COSBench's own reader ignores what it does not know; here it
// is refused, for a setting that silently has no effect spoils a measurement.
type rule struct {
	attributes []string
	required   []string
	children   []string // in the order in which COSBench writes them
	many       string   // the child that may be there more than once, and must be there
	one        string   // the child that must be there once
}

var grammar = map[string]rule{
	"workload": {attributes: []string{"name", "description", "trigger", "config"},
		required: []string{"name"}, children: []string{"auth", "storage", "workflow"}, one: "workflow"},
	"auth":     {attributes: []string{"type", "config"}, required: []string{"type"}},
	"storage":  {attributes: []string{"type", "config"}, required: []string{"type"}},
	"workflow": {attributes: []string{"config"}, children: []string{"workstage"}, many: "workstage"},
	"workstage": {attributes: []string{"name", "closuredelay", "trigger", "config"},
		required: []string{"name"}, children: []string{"auth", "storage", "work"}, many: "work"},
	"work": {attributes: []string{"name", "type", "workers", "interval", "division", "runtime", "rampup",
		"rampdown", "totalOps", "totalBytes", "afr", "driver", "config"},
		children: []string{"auth", "storage", "operation"}},
	"operation": {attributes: []string{"type", "ratio", "division", "config", "id"},
		required: []string{"type"}},
}

// maxBytes is more than any workload of people has.
const maxBytes = 16 << 20

// readXML reads a file into elements, each of which holds only what its rule allows.
func readXML(reader io.Reader) (*element, error) {
	text, err := io.ReadAll(io.LimitReader(reader, maxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxBytes {
		return nil, &Fault{Message: fmt.Sprintf("longer than %d MiB: this is no workload", maxBytes>>20)}
	}
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
		return nil, &Fault{Message: errEncoding("UTF-16").Error()}
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) // a byte-order mark is no content
	b := builder{decoder: xml.NewDecoder(bytes.NewReader(text))}
	b.decoder.CharsetReader = func(charset string, input io.Reader) (io.Reader, error) {
		if strings.EqualFold(charset, "US-ASCII") || strings.EqualFold(charset, "ASCII") {
			return input, nil
		}
		return nil, errEncoding(charset)
	}
	for {
		b.line, _ = b.decoder.InputPos()
		token, err := b.decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = b.add(token)
		} else {
			err = b.syntax(err)
		}
		if err != nil {
			return nil, err
		}
	}
	if b.root == nil {
		return nil, &Fault{Message: "there is no workload element in the file"}
	}
	return b.root, nil
}

// errEncoding is an encoding that cannot be read.
type errEncoding string

func (e errEncoding) Error() string {
	return fmt.Sprintf("the encoding %s is not supported; save the file as UTF-8", string(e))
}

type builder struct {
	decoder *xml.Decoder
	line    int // where the current token begins
	root    *element
	open    []*element
}

// fault is a mistake at a line, inside whichever element is open.
func (b *builder) fault(line int, format string, args ...any) *Fault {
	f := &Fault{Line: line, Message: fmt.Sprintf(format, args...)}
	if len(b.open) > 0 {
		f.Element = b.open[len(b.open)-1].title()
	}
	return f
}

func (b *builder) syntax(err error) error {
	line, _ := b.decoder.InputPos()
	var syntax *xml.SyntaxError
	if errors.As(err, &syntax) {
		return b.fault(syntax.Line, "not well-formed XML: %s", syntax.Msg)
	}
	var encoding errEncoding
	if errors.As(err, &encoding) {
		return b.fault(line, "%s", encoding.Error())
	}
	return b.fault(line, "%s", strings.TrimPrefix(err.Error(), "xml: "))
}

func (b *builder) add(token xml.Token) error {
	switch t := token.(type) {
	case xml.StartElement:
		return b.start(t)
	case xml.EndElement:
		ended := b.open[len(b.open)-1]
		b.open = b.open[:len(b.open)-1]
		return ended.complete()
	case xml.CharData:
		if text := strings.TrimSpace(string(t)); text != "" {
			return b.fault(b.line, "there is text (%.20q); everything is written in attributes", text)
		}
	case xml.Directive:
		return b.fault(b.line, "document types and other <!...> directives are not supported; take it out")
	case xml.ProcInst:
		if t.Target != "xml" {
			return b.fault(b.line, "the processing instruction <?%s ...?> is not supported", t.Target)
		}
	}
	return nil
}

func (b *builder) start(t xml.StartElement) error {
	name := t.Name.Local
	if t.Name.Space != "" {
		return b.fault(b.line, "the name space of <%s> is not supported; workloads have none", name)
	}
	made := &element{name: name, line: b.line, attributes: map[string]string{}}
	switch {
	case len(b.open) > 0:
		parent := b.open[len(b.open)-1]
		if allowed := grammar[parent.name].children; !slices.Contains(allowed, name) {
			return b.fault(b.line, "<%s> cannot be here; allowed: %s", name, orNothing(allowed))
		}
		parent.children = append(parent.children, made)
	case b.root != nil:
		return b.fault(b.line, "<%s> is a second workload; a file holds one", name)
	case name != "workload":
		return b.fault(b.line, "the file begins with <%s>; a workload begins with <workload>", name)
	default:
		b.root = made
	}
	b.open = append(b.open, made)
	return made.read(t.Attr)
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
	for _, name := range grammar[e.name].required {
		if e.attributes[name] == "" {
			return e.fault("the attribute %s is missing", name)
		}
	}
	return nil
}

// complete checks the number of the children.
func (e *element) complete() error {
	r := grammar[e.name]
	for _, name := range r.children {
		found := e.all(name)
		switch {
		case len(found) == 0 && (name == r.one || name == r.many):
			return e.fault("there is no <%s> in it", name)
		case len(found) > 1 && name != r.many && name != "operation":
			return found[1].fault("there is a second <%s> in this %s; one is allowed", name, e.name)
		}
	}
	return nil
}

func orNothing(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}
