package cosbench

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode"

	"hotbed/dataplane/cosbench/store"
)

// Plan is a checked and compiled workload, ready to run.
type Plan struct {
	*Workload
	Warnings []string `json:"warnings,omitempty"` // settings without effect here, a sentence each
	stages   []stagePlan
}

type stagePlan struct {
	*Stage
	works []*workPlan
}

type workPlan struct {
	*Work
	index      int // from 1 within the stage
	operations []*operationPlan
	draw       [100]uint8 // which operation each percent stands for
	login      store.Login
	attempts   int // of logging in
	open       store.Opener
}

// MakePlan checks what the XML reader cannot: types, keys of configs, distributions, divisions. A
// mistake is a *Fault.
func MakePlan(workload *Workload, kinds store.Kinds) (*Plan, error) {
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

func planWork(work *Work, kinds store.Kinds) (*workPlan, error) {
	p := &workPlan{Work: work}
	var err error
	if p.login, err = choose(work.Auth, "auth", kinds.Auth, "retry"); err != nil {
		return nil, err
	}
	attempts, err := work.Auth.Config.Int("retry", 1)
	if err != nil || attempts < 0 || attempts > 1000 {
		return nil, &Fault{work.Auth.line, "auth", "retry is not a number of attempts, 1 to 1000"}
	}
	p.attempts = int(max(attempts, 1))
	if p.open, err = choose(work.Storage, "storage", kinds.Storage); err != nil {
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

// choose finds the type of an auth or a storage element. It refuses keys that the type does not
// have and values that they cannot have. Extra keys are read elsewhere.
func choose[O store.Opener | store.Login](a Access, what string, kinds map[string]store.Kind[O], extra ...string) (O, error) {
	fault := func(format string, args ...any) *Fault {
		return &Fault{a.line, fmt.Sprintf("%s %q", what, a.Type), fmt.Sprintf(format, args...)}
	}
	kind, found := kinds[a.Type]
	if !found {
		return nil, fault("the %s type %q is not supported; supported: %s", what, a.Type,
			strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	}
	if err := onlyKeys(a.Config, append(extra, kind.Keys...)); err != nil {
		return nil, fault("%v", err)
	}
	made, err := kind.New(a.Config)
	if err != nil {
		return nil, fault("%v", err)
	}
	return made, nil
}

// onlyKeys refuses an unknown key, by name.
func onlyKeys(config store.Config, known []string) error {
	for _, s := range config {
		if slices.Contains(known, s.Key) {
			continue
		}
		for _, other := range known {
			if strings.EqualFold(s.Key, other) {
				return fmt.Errorf("the key %s has no effect; write it %s", s.Key, other)
			}
		}
		return fmt.Errorf("the key %s is not supported; supported: %s", s.Key, strings.Join(known, ", "))
	}
	return nil
}

// operationKeys are the keys of all operations: an operation inherits the keys of its work.
var operationKeys = []string{"containers", "objects", "sizes", "cprefix", "csuffix", "oprefix", "osuffix",
	"content", "chunked", "hashCheck", "createContainer", "deleteContainer", "name"}

// operationPlan is an operation that any worker can do.
type operationPlan struct {
	*Operation
	index           uint8 // within its work
	act             action
	containers      *names
	objects         *names
	sizes           Sizes
	zero            bool // content=zero
	chunked         bool
	hashCheck       bool
	createContainer bool
	deleteContainer bool
}

// planOperation compiles an operation for a number of workers.
func planOperation(o *Operation, workers int) (*operationPlan, error) {
	p := &operationPlan{Operation: o}
	if err := onlyKeys(o.Config, operationKeys); err != nil {
		return nil, err
	}
	for _, s := range []struct {
		key     string
		missing bool
		into    *bool
	}{
		{"chunked", false, &p.chunked}, {"hashCheck", false, &p.hashCheck},
		{"createContainer", true, &p.createContainer}, {"deleteContainer", true, &p.deleteContainer},
	} {
		var err error
		if *s.into, err = o.Config.Bool(s.key, s.missing); err != nil {
			return nil, err
		}
	}
	content := o.Config.Text("content", "random")
	if p.zero = content == "zero"; !p.zero && content != "random" {
		return nil, fmt.Errorf("content=%s is not supported; allowed: random, zero", content)
	}
	var err error
	switch o.Type {
	case Init, Prepare:
		p.act = prepare
		if err = p.readScan(); err == nil {
			p.sizes, err = readSizes(o.Config, workers)
		}
	case Cleanup, Dispose:
		p.act = cleanup
		err = p.readScan()
	default:
		p.act = actions[o.Type]
		err = p.readPicks(workers)
	}
	return p, err
}

// readScan parses the ranges that init, prepare, cleanup and dispose go through.
func (p *operationPlan) readScan() error {
	var err error
	if p.containers, err = readNames(p.Config, containerKeys, ParseRange); err == nil {
		p.objects, err = readNames(p.Config, objectKeys, ParseRange)
	}
	return err
}

// readPicks parses the distributions of one request. A list without objects always divides its
// containers among the workers, and a list with objects divides nothing, as in COSBench.
func (p *operationPlan) readPicks(workers int) error {
	list := p.Type == "list"
	_, containers := p.Config.Lookup("containers")
	_, objects := p.Config.Lookup("objects")
	parse := func(text string) (*Distribution, error) { return ParseDistribution(text, workers) }
	var err error
	if containers || !list {
		if p.containers, err = readNames(p.Config, containerKeys, parse); err != nil {
			return err
		}
	}
	if objects && !containers {
		return fmt.Errorf("objects needs containers")
	}
	if objects || !list {
		if p.objects, err = readNames(p.Config, objectKeys, parse); err != nil {
			return err
		}
	}
	if p.Type == "write" {
		if p.sizes, err = readSizes(p.Config, workers); err != nil {
			return err
		}
	}
	switch {
	case !list:
		p.containers.divided, p.objects.divided = p.Division == DivideContainers, p.Division == DivideObjects
	case p.containers != nil:
		p.containers.divided = p.objects == nil
	}
	for _, n := range []*names{p.containers, p.objects} {
		if n != nil && n.divided {
			if err := n.numbers.Divisible(workers); err != nil && list {
				return fmt.Errorf("%w (a list of whole containers always divides them)", err)
			} else if err != nil {
				return fmt.Errorf("%w, or take another division", err)
			}
		}
	}
	return nil
}

func readSizes(config store.Config, workers int) (Sizes, error) {
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

// nameKeys are the keys of a config for the names of containers or objects.
type nameKeys struct{ numbers, prefix, suffix, missing string }

var (
	containerKeys = nameKeys{"containers", "cprefix", "csuffix", "mycontainers"}
	objectKeys    = nameKeys{"objects", "oprefix", "osuffix", "myobjects"}
)

// names are names that contain a number, to draw from or to go through.
type names struct {
	prefix, suffix string
	numbers        *Distribution
	divided        bool // each worker draws from its share
}

func readNames(config store.Config, keys nameKeys, parse func(string) (*Distribution, error)) (*names, error) {
	text, err := config.Required(keys.numbers)
	if err != nil {
		return nil, err
	}
	n := &names{prefix: config.Text(keys.prefix, keys.missing), suffix: config.Text(keys.suffix, "")}
	if n.numbers, err = parse(text); err != nil {
		return nil, fmt.Errorf("%s: %w", keys.numbers, err)
	}
	return n, nil
}

func (n *names) draw(random *rand.Rand, worker, workers int) string {
	if !n.divided {
		worker, workers = 1, 1
	}
	return n.of(n.numbers.Draw(random, worker, workers))
}

// of returns the name of a number.
func (n *names) of(number int64) string {
	var some [64]byte
	name := strconv.AppendInt(append(some[:0], n.prefix...), number, 10)
	return string(append(name, n.suffix...))
}

// part returns the first and the last number of a worker's part.
func (n *names) part(divided bool, worker, workers int) (first, last int64) {
	if !divided {
		worker, workers = 1, 1
	}
	start, length := Share(n.numbers.lower, n.numbers.upper, worker, workers)
	return start, start + length - 1
}

// each calls visit for every container and object of a worker's part, container by container, until
// visit returns false. If the worker has no objects, each container comes once, with an empty object.
func (p *operationPlan) each(worker, workers int, visit func(container, object string) bool) {
	first, last := p.containers.part(p.Division == DivideContainers, worker, workers)
	from, to := p.objects.part(p.Division == DivideObjects, worker, workers)
	for c := first; c <= last; c++ {
		container := p.containers.of(c)
		if from > to && !visit(container, "") {
			return
		}
		for o := from; o <= to; o++ {
			if !visit(container, p.objects.of(o)) {
				return
			}
		}
	}
}

// Share returns lower bound and length of one worker's part of a range of numbers (worker from 1 to
// workers): COSBench's division. If the division has a remainder, the first workers get one number
// more.
func Share(lower, upper int64, worker, workers int) (int64, int64) {
	all, index := int64(workers), int64(worker-1)
	length := upper - lower + 1
	base, extra := length/all, length%all
	start := lower + base*index + min(extra, index)
	if index < extra {
		base++
	}
	return start, base
}

// Distribution draws numbers as COSBench's selectors and sizes do:
//
//	c(v)             always v
//	u(lo,hi), u(lo)  uniform, both ends included; without hi up to 2147483647
//	r(lo,hi), lo-hi  one after the other, round and round; each worker its own turn when divided
//	s(lo,hi)         one after the other, one turn for all workers
//	h(lo|hi|w,...)   a bucket by its weight, uniform inside; lo||w is open
//
// It may be used by many workers at once.
type Distribution struct {
	kind         byte
	lower, upper int64
	buckets      []bucket
	weight       int64           // of all buckets
	turns        []atomic.Uint64 // of r: one per worker; of s: one
}

type bucket struct{ lower, upper, cumulated int64 }

// open is the default upper bound: the largest Java int.
const open = math.MaxInt32

// ParseDistribution parses a distribution for a number of workers.
func ParseDistribution(text string, workers int) (*Distribution, error) {
	d := &Distribution{turns: make([]atomic.Uint64, max(workers, 1))}
	if lower, upper, found := strings.Cut(text, "-"); found && !strings.Contains(text, "(") {
		d.kind = 'r'
		return d, d.bounds(text, []string{lower, upper})
	}
	name, rest, found := strings.Cut(text, "(")
	inside, closed := strings.CutSuffix(rest, ")")
	if !found || !closed || len(name) != 1 || !strings.Contains("cursh", name) {
		return nil, fmt.Errorf("%q is not a distribution; allowed: c(v), u(lo,hi), r(lo,hi), lo-hi, s(lo,hi), "+
			"h(lo|hi|weight,...)", text)
	}
	d.kind = name[0]
	arguments := strings.Split(inside, ",")
	switch d.kind {
	case 'c':
		value, err := number(arguments[0], 0)
		if err != nil || len(arguments) > 1 {
			return nil, fmt.Errorf("%q needs one whole number from 0", text)
		}
		d.lower, d.upper = value, value
		return d, nil
	case 'h':
		return d, d.histogram(text, arguments)
	}
	return d, d.bounds(text, arguments)
}

// number reads a whole number as large as COSBench's.
func number(text string, least int64) (int64, error) {
	value, err := strconv.ParseInt(text, 10, 32)
	if err == nil && value < least {
		err = strconv.ErrRange
	}
	return value, err
}

func (d *Distribution) bounds(text string, arguments []string) error {
	if len(arguments) != 2 && (len(arguments) != 1 || d.kind != 'u') {
		return fmt.Errorf("%q needs a lower and an upper bound", text)
	}
	var err error
	d.lower, err = number(arguments[0], 1)
	d.upper = open
	if err == nil && len(arguments) == 2 {
		d.upper, err = number(arguments[1], 1)
	}
	if err != nil || d.lower > d.upper {
		return fmt.Errorf("%q needs whole numbers from 1 to %d, the lower one first", text, open)
	}
	return nil
}

func (d *Distribution) histogram(text string, arguments []string) error {
	for _, argument := range arguments {
		fields := strings.Split(argument, "|")
		if len(fields) != 3 {
			return fmt.Errorf("%q needs lower|upper|weight in each bucket", text)
		}
		b := bucket{upper: open}
		var weight int64
		var err [3]error
		b.lower, err[0] = number(fields[0], 1)
		if fields[1] != "" {
			b.upper, err[1] = number(fields[1], 1)
		}
		weight, err[2] = number(fields[2], 1)
		if err != [3]error{} || b.lower > b.upper {
			return fmt.Errorf("%q needs whole numbers from 1 in each bucket, the lower bound first", text)
		}
		d.weight += weight
		b.cumulated = d.weight
		if len(d.buckets) == 0 {
			d.lower = b.lower
		}
		d.buckets = append(d.buckets, b)
		d.lower, d.upper = min(d.lower, b.lower), max(d.upper, b.upper)
	}
	return nil
}

// Divisible returns an error if the numbers cannot be divided among the workers.
func (d *Distribution) Divisible(workers int) error {
	switch {
	case d.kind == 'h' && workers > 1:
		return fmt.Errorf("a histogram cannot be divided among workers")
	case (d.kind == 'u' || d.kind == 'r') && d.upper-d.lower+1 < int64(workers):
		return fmt.Errorf("%d numbers cannot be divided among %d workers; give them at least one each",
			d.upper-d.lower+1, workers)
	}
	return nil
}

// Draw draws a number for one of several workers (from 1); worker 1 of 1 draws from all numbers.
func (d *Distribution) Draw(random *rand.Rand, worker, workers int) int64 {
	switch d.kind {
	case 'u':
		start, length := Share(d.lower, d.upper, worker, workers)
		return start + random.Int64N(length)
	case 'r':
		start, length := Share(d.lower, d.upper, worker, workers)
		return start + turn(&d.turns[worker-1], length)
	case 's':
		return d.lower + turn(&d.turns[0], d.upper-d.lower+1)
	case 'h':
		at := random.Int64N(d.weight)
		for _, b := range d.buckets {
			if at < b.cumulated {
				return b.lower + random.Int64N(b.upper-b.lower+1)
			}
		}
	}
	return d.lower
}

func turn(cursor *atomic.Uint64, length int64) int64 {
	return int64((cursor.Add(1) - 1) % uint64(length))
}

// Sizes draws the sizes of objects in bytes: a distribution and a decimal unit, u(1,128)KB.
type Sizes struct {
	*Distribution
	unit int64
}

var sizeUnits = []struct {
	name  string
	bytes int64
}{{"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1}}

// ParseSizes parses the sizes of objects.
func ParseSizes(text string, workers int) (Sizes, error) {
	for _, unit := range sizeUnits {
		numbers, found := strings.CutSuffix(text, unit.name)
		if found && strings.TrimRightFunc(numbers, unicode.IsLetter) == numbers { // T of TB is no number's end
			d, err := ParseDistribution(numbers, workers)
			return Sizes{d, unit.bytes}, err
		}
	}
	return Sizes{}, fmt.Errorf("%q has no unit that is known; write B, KB, MB or GB behind it, KB being 1000 bytes", text)
}

// Draw draws a size in bytes.
func (s Sizes) Draw(random *rand.Rand) int64 { return s.Distribution.Draw(random, 1, 1) * s.unit }

// ParseRange parses a range that init, prepare, cleanup and dispose go through: r(lo,hi) or lo-hi;
// r(0,0) is empty.
func ParseRange(text string) (*Distribution, error) {
	if text == "r(0,0)" || text == "0-0" {
		return &Distribution{kind: 'r', lower: 1}, nil
	}
	d, err := ParseDistribution(text, 1)
	if err == nil && d.kind != 'r' {
		err = fmt.Errorf("%q is not a range; allowed: r(lo,hi), lo-hi, or r(0,0) for none", text)
	}
	return d, err
}
