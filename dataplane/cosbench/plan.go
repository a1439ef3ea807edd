package cosbench

import (
	"fmt"
	"slices"
	"strings"

	"hotbed/dataplane/cosbench/access"
	"hotbed/dataplane/cosbench/auth"
	"hotbed/dataplane/cosbench/storage"
)

// Kinds are the storage and auth types that a workload may name.
type Kinds struct {
	Storage storage.Registry
	Auth    auth.Registry
}

// Plan is a workload of which everything has been checked and compiled: it can be run.
type Plan struct {
	*Workload
	Warnings []string `json:"warnings,omitempty"` // what has no effect here, a sentence each
	stages   []stagePlan
}

type stagePlan struct {
	*Stage
	works []*workPlan
}

type workPlan struct {
	*Work
	index       int // from 1 within the stage
	operations  []*operationPlan
	draw        [100]uint8 // which operation each percent stands for
	auth        auth.Kind
	authConfig  access.Config
	attempts    int // of logging in
	store       storage.Kind
	storeConfig access.Config
}

// MakePlan checks what reading the XML could not: types, keys of configs, distributions, divisions.
// What is wrong is a *Fault.
func MakePlan(workload *Workload, kinds Kinds) (*Plan, error) {
	p := &Plan{Workload: workload}
	for i := range workload.Stages {
		stage := stagePlan{Stage: &workload.Stages[i]}
		for j := range stage.Works {
			work, err := planWork(&stage.Works[j], kinds)
			if err != nil {
				return nil, err
			}
			work.index = j + 1
			if work.Driver != "" && work.Driver != "none" {
				p.Warnings = append(p.Warnings, work.element.fault(
					"driver=%q has no effect: all works run in this one driver", work.Driver).Error())
			}
			stage.works = append(stage.works, work)
		}
		p.stages = append(p.stages, stage)
	}
	return p, nil
}

func planWork(work *Work, kinds Kinds) (*workPlan, error) {
	p := &workPlan{Work: work}
	var err error
	if p.auth, p.authConfig, err = choose(work.Auth, "auth", kinds.Auth,
		func(k auth.Kind) ([]string, func(access.Config) error) {
			return append([]string{"retry"}, k.Keys...), k.Check
		}); err != nil {
		return nil, err
	}
	attempts, err := p.authConfig.Int("retry", 1)
	if err != nil || attempts < 0 || attempts > 1000 {
		return nil, &Fault{work.Auth.line, "auth", "retry is not a number of attempts, 1 to 1000"}
	}
	p.attempts = int(max(attempts, 1))
	if p.store, p.storeConfig, err = choose(work.Storage, "storage", kinds.Storage,
		func(k storage.Kind) ([]string, func(access.Config) error) { return k.Keys, k.Check }); err != nil {
		return nil, err
	}
	if work.Type == Delay {
		return p, nil
	}
	percent := 0
	for i := range work.Operations {
		o := &work.Operations[i]
		planned, err := planOperation(o, work.Workers)
		if err != nil {
			return nil, o.element.fault("%v", err)
		}
		for range o.Ratio {
			p.draw[percent] = uint8(i)
			percent++
		}
		planned.index = uint8(i)
		p.operations = append(p.operations, planned)
	}
	return p, nil
}

// choose finds the type that an auth or a storage element names, and refuses keys that it does not
// have and values that they cannot have.
func choose[K any](a Access, what string, kinds map[string]K,
	rules func(K) (keys []string, check func(access.Config) error)) (K, access.Config, error) {
	fault := func(format string, args ...any) *Fault {
		return &Fault{a.line, fmt.Sprintf("%s %q", what, a.Type), fmt.Sprintf(format, args...)}
	}
	kind, found := kinds[a.Type]
	if !found {
		names := make([]string, 0, len(kinds))
		for name := range kinds {
			names = append(names, name)
		}
		slices.Sort(names)
		return kind, access.Config{}, fault("the %s type %q is not supported; supported: %s", what, a.Type,
			strings.Join(names, ", "))
	}
	config, err := access.ParseConfig(string(a.Config))
	keys, check := rules(kind)
	if err == nil {
		err = onlyKeys(config.Keys(), keys)
	}
	if err == nil && check != nil {
		err = check(config)
	}
	if err != nil {
		return kind, config, fault("%v", err)
	}
	return kind, config, nil
}

// onlyKeys refuses, by name, a key that nobody knows.
func onlyKeys(keys, known []string) error {
	for _, key := range keys {
		if slices.Contains(known, key) {
			continue
		}
		for _, other := range known {
			if strings.EqualFold(key, other) {
				return fmt.Errorf("the key %s has no effect; write it %s", key, other)
			}
		}
		if len(known) == 0 {
			return fmt.Errorf("the key %s is not supported; it takes no keys", key)
		}
		return fmt.Errorf("the key %s is not supported; supported: %s", key, strings.Join(known, ", "))
	}
	return nil
}

// operationKeys are those of all operations together: an operation inherits those of its work.
var operationKeys = []string{"containers", "objects", "sizes", "cprefix", "csuffix", "oprefix", "osuffix",
	"content", "chunked", "hashCheck", "createContainer", "deleteContainer", "files", "fileselection", "name",
	"histo", "histogram"}

// operationPlan is an operation ready to be done by any worker.
type operationPlan struct {
	*Operation
	index           uint8 // within its work
	act             action
	containers      *names
	objects         *names
	scan            scan
	sizes           Sizes
	files           []file
	chooseFile      *Distribution
	zero            bool // content=zero
	chunked         bool
	hashCheck       bool
	createContainer bool
	deleteContainer bool
}

// planOperation compiles an operation for a number of workers.
func planOperation(o *Operation, workers int) (*operationPlan, error) {
	p := &operationPlan{Operation: o}
	config, err := access.ParseConfig(string(o.Config))
	if err != nil {
		return nil, err
	}
	if err := onlyKeys(config.Keys(), operationKeys); err != nil {
		return nil, err
	}
	if err := p.readSwitches(config); err != nil {
		return nil, err
	}
	switch o.Type {
	case Init, Prepare:
		p.act = prepare
	case Cleanup, Dispose:
		p.act = cleanup
	default:
		p.act = actions[o.Type]
		return p, p.readPicks(config, workers)
	}
	if p.scan, err = readScan(config); err == nil && p.SampleType() == "write" {
		p.sizes, err = readSizes(config, workers)
	}
	return p, err
}

func (p *operationPlan) readSwitches(config access.Config) error {
	var histogram bool
	for _, s := range []struct {
		key     string
		missing bool
		into    *bool
	}{
		{"chunked", false, &p.chunked}, {"hashCheck", false, &p.hashCheck},
		{"createContainer", true, &p.createContainer}, {"deleteContainer", true, &p.deleteContainer},
		{"histo", true, &histogram}, {"histogram", true, &histogram}, // taken always
	} {
		var err error
		if *s.into, err = config.Bool(s.key, s.missing); err != nil {
			return err
		}
	}
	switch content := config.String("content", "random"); content {
	case "zero":
		p.zero = true
	case "random":
	default:
		return fmt.Errorf("content=%s is not supported; allowed: random, zero", content)
	}
	return nil
}

// readPicks reads what one request is drawn from.
func (p *operationPlan) readPicks(config access.Config, workers int) error {
	var err error
	_, some := config.Lookup("containers")
	if some || p.Type != "list" {
		if p.containers, err = readNames(config, containerKeys, workers); err != nil {
			return err
		}
	}
	switch p.Type {
	case "list":
		if _, some := config.Lookup("objects"); some {
			if p.containers == nil {
				return fmt.Errorf("objects needs containers")
			}
			if p.objects, err = readNames(config, objectKeys, workers); err != nil {
				return err
			}
		}
	case "filewrite":
		if err := p.readFiles(config, workers); err != nil {
			return err
		}
	default:
		if p.objects, err = readNames(config, objectKeys, workers); err != nil {
			return err
		}
	}
	if p.Type == "write" {
		if p.sizes, err = readSizes(config, workers); err != nil {
			return err
		}
	}
	p.divide()
	for _, n := range []*names{p.containers, p.objects} {
		if n != nil && n.divided {
			if err := n.numbers.Divisible(workers); err != nil && p.Type == "list" {
				return fmt.Errorf("%w (a list of whole containers always divides them)", err)
			} else if err != nil {
				return fmt.Errorf("%w, or take another division", err)
			}
		}
	}
	return nil
}

// divide marks what is divided among the workers. A list of whole containers always divides them
// and a list by objects never does, as in COSBench.
func (p *operationPlan) divide() {
	if p.Type == "list" {
		if p.containers != nil {
			p.containers.divided = p.objects == nil
		}
		return
	}
	p.containers.divided = p.Division == DivideContainers
	if p.objects != nil {
		p.objects.divided = p.Division == DivideObjects
	}
}

func readSizes(config access.Config, workers int) (Sizes, error) {
	text, err := config.Required("sizes")
	if err != nil {
		return Sizes{}, err
	}
	sizes, err := ParseSizes(text, workers)
	if err != nil {
		return sizes, fmt.Errorf("sizes: %w", err)
	}
	return sizes, nil
}
