package cosbench

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	"hotbed/dataplane/cosbench/access"
)

// nameKeys are the keys of a config that say how containers or objects are called.
type nameKeys struct{ numbers, prefix, suffix, missing string }

var (
	containerKeys = nameKeys{"containers", "cprefix", "csuffix", "mycontainers"}
	objectKeys    = nameKeys{"objects", "oprefix", "osuffix", "myobjects"}
)

// names are names made of a drawn number.
type names struct {
	prefix, suffix string
	numbers        *Distribution
	divided        bool // each worker draws from its share
}

func readNames(config access.Config, keys nameKeys, workers int) (*names, error) {
	text, err := config.Required(keys.numbers)
	if err != nil {
		return nil, err
	}
	n := &names{prefix: config.String(keys.prefix, keys.missing), suffix: config.String(keys.suffix, "")}
	if n.numbers, err = ParseDistribution(text, workers); err != nil {
		return nil, fmt.Errorf("%s: %w", keys.numbers, err)
	}
	return n, nil
}

func (n *names) draw(random *rand.Rand, worker, workers int) string {
	if !n.divided {
		worker, workers = 1, 1
	}
	return numbered(n.prefix, n.numbers.Draw(random, worker, workers), n.suffix)
}

func numbered(prefix string, number int64, suffix string) string {
	var some [64]byte
	name := strconv.AppendInt(append(some[:0], prefix...), number, 10)
	return string(append(name, suffix...))
}

// scan is what init, prepare, cleanup and dispose go through: all objects of all containers.
type scan struct {
	containers, objects Range
	cprefix, csuffix    string
	oprefix, osuffix    string
}

func readScan(config access.Config) (scan, error) {
	s := scan{
		cprefix: config.String("cprefix", containerKeys.missing), csuffix: config.String("csuffix", ""),
		oprefix: config.String("oprefix", objectKeys.missing), osuffix: config.String("osuffix", ""),
	}
	for _, r := range []struct {
		key  string
		into *Range
	}{{"containers", &s.containers}, {"objects", &s.objects}} {
		text, err := config.Required(r.key)
		if err != nil {
			return s, err
		}
		if *r.into, err = ParseRange(text); err != nil {
			return s, fmt.Errorf("%s: %w", r.key, err)
		}
	}
	return s, nil
}

// each calls visit for every container and object of a worker's share, container by container.
// Where the worker has no objects the container comes once, with an empty object. It ends early
// when visit says so.
func (s *scan) each(division string, worker, workers int, visit func(container, object string) bool) {
	containers, objects := s.containers, s.objects
	switch division {
	case DivideContainers:
		containers = containers.Of(worker, workers)
	case DivideObjects:
		objects = objects.Of(worker, workers)
	}
	for c := containers.Lower; c <= containers.Upper; c++ {
		container := numbered(s.cprefix, c, s.csuffix)
		if objects.Len() <= 0 && !visit(container, "") {
			return
		}
		for o := objects.Lower; o <= objects.Upper; o++ {
			if !visit(container, numbered(s.oprefix, o, s.osuffix)) {
				return
			}
		}
	}
}

// file is one that filewrite may store.
type file struct {
	name, path string
	size       int64
}

// readFiles reads which folder filewrite stores files of, and in which order.
func (p *operationPlan) readFiles(config access.Config, workers int) error {
	folder, err := config.Required("files")
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(folder) // by name
	if err != nil {
		return fmt.Errorf("files: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		info, err := os.Stat(path) // of what a link leads to
		if err == nil && info.Mode().IsRegular() {
			p.files = append(p.files, file{entry.Name(), path, info.Size()})
		}
	}
	if len(p.files) == 0 {
		return fmt.Errorf("files: there are no files in %s", folder)
	}
	selection, err := config.Required("fileselection")
	if err != nil {
		return err
	}
	if kind := selection[:1]; kind != "u" && kind != "r" && kind != "s" {
		return fmt.Errorf("fileselection=%s is not supported; allowed: u, r, s", selection)
	}
	p.chooseFile, err = ParseDistribution(fmt.Sprintf("%s(1,%d)", selection[:1], len(p.files)), workers)
	return err
}
