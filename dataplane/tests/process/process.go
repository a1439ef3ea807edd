// Package process runs the test program as a second process, which a test can flood and kill. The
// program's TestMain obeys the environment.
package process

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"hotbed/dataplane/tests/must"
)

// Process is a copy of the test program.
type Process struct {
	Log     bytes.Buffer
	Command *exec.Cmd
}

// Start starts the process, which is killed with the test.
func (p *Process) Start(t testing.TB, environment []string, args ...string) {
	t.Helper()
	p.Command = exec.Command(os.Args[0], args...)
	p.Command.Env = append(os.Environ(), environment...)
	p.Command.Stderr = &p.Log
	must.Succeed(t, p.Command.Start())
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("a process said:\n%s", p.Log.String())
		}
	})
}

// Kill ends the process as kill -9 does.
func (p *Process) Kill() {
	_ = p.Command.Process.Kill()
	_ = p.Command.Wait()
}

// Limit gives this process as many descriptors as the text says.
func Limit(descriptors string) error {
	n, err := strconv.ParseUint(descriptors, 10, 64)
	if err != nil {
		return err
	}
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n})
}

var peak = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// Peak returns a process's peak memory in bytes.
func Peak(t testing.TB, pid int) int {
	t.Helper()
	text := must.Read(t, fmt.Sprintf("/proc/%d/status", pid))
	kilobytes, err := strconv.Atoi(string(peak.FindSubmatch(text)[1]))
	must.Succeed(t, err)
	return kilobytes << 10
}

// Output returns the bytes that a function writes to standard output, and its error.
func Output(t testing.TB, do func() error) ([]byte, error) {
	t.Helper()
	in, out, err := os.Pipe()
	must.Succeed(t, err)
	stdout := os.Stdout
	defer func() { os.Stdout = stdout }()
	os.Stdout = out
	text := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(in)
		text <- all
	}()
	failed := do()
	_ = out.Close()
	return <-text, failed
}
