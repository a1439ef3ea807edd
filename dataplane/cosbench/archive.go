package cosbench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// Archive is a folder of results, laid out as COSBench's.
type Archive struct{ Folder string }

// Entry is one run's place in an archive.
type Entry struct {
	Archive
	ID   string // such as w7
	Name string // such as w7-mos-A
	made bool   // its archive's folder was not there before
}

var entryName = regexp.MustCompile(`^w([0-9]{1,9})-`)

// Claim makes the folder of the next run, which nobody else gets.
func (a Archive) Claim(workload string) (*Entry, error) {
	_, missing := os.Stat(a.Folder)
	if err := os.MkdirAll(a.Folder, 0o777); err != nil {
		return nil, err
	}
	unlock, err := a.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	number, err := a.latest()
	if err != nil {
		return nil, err
	}
	id := fmt.Sprintf("w%d", number+1)
	e := &Entry{a, id, id + "-" + workload, missing != nil}
	return e, os.Mkdir(e.path(""), 0o777)
}

// lock keeps other drivers with the same archive out for a moment.
func (a Archive) lock() (func(), error) {
	folder, err := os.Open(a.Folder)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	return func() { _ = folder.Close() }, nil // which gives up the lock
}

// latest is the largest number of a run, by its folder or by the history.
func (a Archive) latest() (int, error) {
	entries, err := os.ReadDir(a.Folder)
	if err != nil {
		return 0, err
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	past, err := os.ReadFile(filepath.Join(a.Folder, "run-history.csv"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	for line := range strings.Lines(string(past)) {
		id, _, _ := strings.Cut(line, ",")
		names = append(names, id+"-")
	}
	latest := 0
	for _, name := range names {
		if match := entryName.FindStringSubmatch(name); match != nil {
			number, _ := strconv.Atoi(match[1]) // of at most nine digits
			latest = max(latest, number)
		}
	}
	return latest, nil
}

func (e *Entry) path(name string) string { return filepath.Join(e.Folder, e.Name, name) }

// Discard removes the folder of a run that measured nothing, and the archive's if this run made it.
func (e *Entry) Discard() error {
	err := os.RemoveAll(e.path(""))
	if e.made {
		_ = os.Remove(e.Folder) // which fails if another run has its folder there by now
	}
	return err
}

// Path is the run's folder.
func (e *Entry) Path() string { return e.path("") }

// SaveConfig writes the workload as it was understood, with its secrets masked.
func (e *Entry) SaveConfig(w *Workload) error {
	return e.create("workload-config.xml", func(out io.Writer) error { return WriteXML(out, w) })
}

// Save writes a run's results and adds it to the archive's lists.
func (e *Entry) Save(r *Result) error {
	tables := map[string]func(*table){
		e.Name + ".csv":              workloadTable(r),
		e.Name + "-rt-histogram.csv": latencyTable(r),
		"series.csv":                 seriesTable(r),
	}
	for _, s := range r.Stages {
		tables[s.ID+".csv"] = stageTable(s)
	}
	for name, fill := range tables {
		if err := e.create(name, func(out io.Writer) error { return writeTable(out, fill) }); err != nil {
			return err
		}
	}
	err := e.create("histograms.json", func(out io.Writer) error {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", " ")
		return encoder.Encode(histograms(e.ID, r))
	})
	if err != nil {
		return err
	}
	unlock, err := e.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return errors.Join(
		e.add("run-history.csv", func(header bool) func(*table) { return runTable(e.ID, r, header) }),
		e.add("workloads.csv", func(header bool) func(*table) { return matrixTable(e.ID, r, header) }))
}

// create writes a file that is not there yet.
func (e *Entry) create(name string, fill func(io.Writer) error) error {
	file, err := os.OpenFile(e.path(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	return errors.Join(fill(file), file.Close())
}

// add writes rows at the end of one of the archive's own files.
func (e *Entry) add(name string, rows func(header bool) func(*table)) error {
	file, err := os.OpenFile(filepath.Join(e.Folder, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil {
		err = writeTable(file, rows(info.Size() == 0))
	}
	return errors.Join(err, file.Close())
}
