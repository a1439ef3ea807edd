// Package cosbench drives object stores with COSBench's workloads: it reads the same XML with the
// same meaning, measures by the same rule and writes the same archive, from one process.
//
// The semantics are those of COSBench 0.4.2; docs/cosbench.md lists them and the few differences.
package cosbench

// Workload is what a workload's XML says, with everything inherited and every default filled in.
type Workload struct {
	Name        string  `json:"name"`
	Description string  `json:"description,omitempty"`
	Trigger     string  `json:"trigger,omitempty"`
	Auth        Access  `json:"auth"`
	Storage     Access  `json:"storage"`
	Stages      []Stage `json:"stages"`
}

// Access is an auth or a storage element.
type Access struct {
	Type   string `json:"type"`
	Config Config `json:"config"`
	line   int
}

// Stage is a workstage: works that run at the same time.
type Stage struct {
	Name         string  `json:"name"`
	ID           string  `json:"id"`             // such as s3-main
	ClosureDelay int     `json:"closuredelay_s"` // how long it sleeps after its works, s
	Trigger      string  `json:"trigger,omitempty"`
	Auth         Access  `json:"auth"`
	Storage      Access  `json:"storage"`
	Works        []Work  `json:"works"`
	element      element // for messages
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

// The ways to divide names among workers.
const (
	DivideNone       = "none"
	DivideContainers = "container"
	DivideObjects    = "object"
)

var divisions = []string{DivideNone, DivideContainers, DivideObjects}

// Work is what a number of workers do over and over until a limit.
type Work struct {
	Name       string      `json:"name"`
	Type       string      `json:"type"`
	Workers    int         `json:"workers"`
	Interval   int         `json:"interval_s"` // between the rows of the stage's series, s
	Division   string      `json:"division"`
	Runtime    int         `json:"runtime_s"` // measured time, s; 0: no limit
	Rampup     int         `json:"rampup_s"`
	Rampdown   int         `json:"rampdown_s"`
	AFR        int         `json:"afr"` // acceptable failures per million samples
	TotalOps   int         `json:"total_ops"`
	TotalBytes int64       `json:"total_bytes"`
	Driver     string      `json:"driver,omitempty"`
	Config     Config      `json:"config"`
	Auth       Access      `json:"auth"`
	Storage    Access      `json:"storage"`
	Operations []Operation `json:"operations"`
	element    element
}

// Operation is one kind of request and how often it is drawn.
type Operation struct {
	ID       string `json:"id"` // op1 and so on within the stage
	Type     string `json:"type"`
	Name     string `json:"name"`
	Ratio    int    `json:"ratio_percent"`
	Division string `json:"division"`
	Config   Config `json:"config"`
	element  element
}

// SampleType is what the operation's requests are: a prepare writes, a cleanup deletes.
func (o *Operation) SampleType() string {
	switch o.Type {
	case Init, Prepare:
		return "write"
	case Cleanup, Dispose:
		return "delete"
	}
	return o.Type
}

// Label is the operation's name in the archive: prepare-write, read.
func (o *Operation) Label() string {
	if sample := o.SampleType(); sample != o.Name {
		return o.Name + "-" + sample
	}
	return o.Name
}
