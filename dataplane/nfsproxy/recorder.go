package nfsproxy

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// recorder buffers rows of a workload's trace until there are enough to write. They have the format
// "plain" of docs/prioritymeister.md, with offsets.
type recorder struct {
	rows []byte
	n    uint64
	file *os.File
}

const recorderBytes = 64 << 10

// row records a request that arrived at a time since recording began.
func (r *recorder) row(at time.Duration, read bool, size, offset int64) {
	r.rows = strconv.AppendInt(r.rows, int64(at), 10)
	r.rows = append(r.rows, ',')
	r.rows = strconv.AppendInt(r.rows, size, 16)
	if read {
		r.rows = append(r.rows, ",DiskRead,"...)
	} else {
		r.rows = append(r.rows, ",DiskWrite,"...)
	}
	r.rows = strconv.AppendInt(r.rows, offset, 16)
	r.rows = append(r.rows, '\n')
	r.n++
}

// flush passes the rows to the writer and returns how many were lost because the writer is behind.
func (r *recorder) flush(to *traceWriter) (lost uint64) {
	if r == nil || r.n == 0 {
		return 0
	}
	select {
	case to.chunks <- chunk{r.file, r.rows}:
		r.rows = make([]byte, 0, recorderBytes)
	default:
		lost = r.n
		r.rows = r.rows[:0]
	}
	r.n = 0
	return lost
}

// traceWriter writes rows, so that the proxy's thread never waits for a disk.
type traceWriter struct {
	chunks chan chunk
	done   sync.WaitGroup
	mutex  sync.Mutex
	err    error
}

type chunk struct {
	file *os.File
	rows []byte
}

func newTraceWriter() *traceWriter {
	w := &traceWriter{chunks: make(chan chunk, 256)}
	w.done.Go(func() {
		files := map[*os.File]*bufio.Writer{}
		for c := range w.chunks {
			out := files[c.file]
			if out == nil {
				out = bufio.NewWriter(c.file)
				files[c.file] = out
			}
			if _, err := out.Write(c.rows); err != nil {
				w.fail(err)
			}
		}
		for file, out := range files {
			w.fail(errors.Join(out.Flush(), file.Close()))
		}
	})
	return w
}

// fail keeps the first error: on a full disk every further chunk would give the same one.
func (w *traceWriter) fail(err error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.err == nil {
		w.err = err
	}
}

// startRecording begins a trace for each workload in a folder, without overwriting files. It must
// run on the proxy's thread.
func (p *Proxy) startRecording(folder string) error {
	if p.traces != nil {
		return fmt.Errorf("traces are being recorded already, in %s; stop that first", p.traceFolder)
	}
	p.traceFolder = folder
	for _, w := range p.workloads {
		if err := w.record(folder); err != nil {
			p.forgetRecorders()
			return err
		}
	}
	p.traces, p.recording = newTraceWriter(), p.now
	return nil
}

// record starts recording for workloads that were added later.
func (p *Proxy) record() {
	if p.traces == nil {
		return
	}
	for _, w := range p.workloads {
		if w.recorder == nil {
			if err := w.record(p.traceFolder); err != nil {
				p.log("%v", err)
			}
		}
	}
}

// dismiss keeps the rows of a removed workload until recording ends, when files are closed. A later
// workload of the same name does not record, because its file exists.
func (p *Proxy) dismiss(w *workload) {
	if w.recorder == nil {
		return
	}
	p.dismissed = append(p.dismissed, chunk{w.recorder.file, w.recorder.rows})
	w.recorder = nil
}

func (w *workload) record(folder string) error {
	path := filepath.Join(folder, w.name+".csv")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("the trace %s is there already; choose another folder", path)
	}
	if err != nil {
		return fmt.Errorf("the trace cannot be written: %w", err)
	}
	w.recorder = &recorder{file: file}
	return nil
}

func (p *Proxy) forgetRecorders() {
	for _, w := range p.workloads {
		if w.recorder != nil {
			_ = w.recorder.file.Close()
			_ = os.Remove(w.recorder.file.Name())
			w.recorder = nil
		}
	}
}

// detachRecording ends recording. The returned function writes the rest and returns an error if
// rows were not written; it may wait for the disk.
func (p *Proxy) detachRecording() (finish func() error) {
	w := p.traces
	if w == nil {
		return func() error { return nil }
	}
	left := p.dismissed
	p.dismissed = nil
	for _, one := range p.workloads {
		if one.recorder != nil {
			left = append(left, chunk{one.recorder.file, one.recorder.rows})
			one.recorder = nil
		}
	}
	p.traces, p.recording = nil, 0
	return func() error {
		for _, c := range left {
			w.chunks <- c
		}
		close(w.chunks)
		w.done.Wait()
		return w.err
	}
}
