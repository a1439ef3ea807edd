package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"hotbed/dataplane/internal/nfs3"
	"hotbed/dataplane/internal/sunrpc"
	"hotbed/dataplane/tests/memnfs"
	"hotbed/dataplane/tests/must"
	"hotbed/dataplane/tests/process"
)

// asProxy makes the test program a proxy with the given descriptor limit. asOffender makes it an
// offender with the named flood.
const (
	asProxy    = "NFSPROXY_TEST_DESCRIPTORS"
	asOffender = "NFSPROXY_TEST_FLOOD"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(asOffender); name != "" {
		connections, _ := strconv.Atoi(os.Args[2])
		flood(os.Args[1], connections, floods[name].bytes, floods[name].again)
	}
	if text := os.Getenv(asProxy); text != "" {
		if err := process.Limit(text); err != nil {
			panic(err)
		}
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// flooded is a proxy process in front of an in-memory server. The victim connects from 127.0.0.2,
// the offender from 127.0.0.3.
type flooded struct {
	t          *testing.T
	pid        int
	nfs, mount string
	control    http.Client
}

const (
	victim, offender = 2, 3
	workloadMemory   = 16 << 20
)

func startFlooded(t *testing.T, descriptors int) *flooded {
	t.Helper()
	server := memnfs.Start(t, &memnfs.Server{})
	folder := t.TempDir()
	write := func(name string, document any) string {
		text, err := json.Marshal(document)
		must.Succeed(t, err)
		return must.Write(t, name, string(text))
	}
	type object = map[string]any
	service := object{"listen": "127.0.0.1:0", "server": server.Address()}
	config := object{"nfs": service, "mount": service, "control": filepath.Join(folder, "control"),
		"record_timeout": "1s", "client_memory": "8MiB", "workload_memory": "16MiB",
		"profile": write("profile", object{"type": "storageConstant", "base": 1e-4, "readBandwidth": 1e9,
			"writeBandwidth": 1e9}),
		"parameters": object{"policy": "pm", "depth": 8, "workloads": []object{
			{"name": "victim", "clients": []string{"127.0.0.2"}, "priority": 1},
			{"name": "offender", "clients": []string{"127.0.0.3"}, "priority": 2}}}}
	command := exec.Command(os.Args[0], "--config", write("config", config))
	command.Env = append(os.Environ(), asProxy+"="+strconv.Itoa(descriptors))
	log, err := command.StderrPipe()
	must.Succeed(t, err)
	must.Succeed(t, command.Start())
	lines := bufio.NewScanner(log)
	f := &flooded{t: t, pid: command.Process.Pid, control: http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(folder, "control"))
		}}}}
	for _, to := range []*string{&f.nfs, &f.mount} {
		if !lines.Scan() {
			t.Fatal("the proxy does not start")
		}
		*to = lines.Text()[strings.LastIndexByte(lines.Text(), ' ')+1:]
	}
	var written atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines.Scan() {
			written.Add(1)
			t.Log(lines.Text())
		}
	}()
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		<-done
		if err := command.Wait(); err != nil {
			t.Error(err)
		}
		if n := written.Load(); n > 200 {
			t.Errorf("the proxy wrote %d lines", n)
		}
	})
	return f
}

// serves calls the proxy as the victim on new connections and returns each call's duration.
func (f *flooded) serves(calls int) (took []time.Duration) {
	f.t.Helper()
	client, root := memnfs.Mount(f.t, f.nfs, f.mount, memnfs.Host(victim))
	defer client.Close()
	handle, err := client.Create(root, "victim")
	must.Succeed(f.t, err)
	data := make([]byte, 64<<10)
	for range calls {
		began := time.Now()
		must.Succeed(f.t, client.Write(handle, 0, data))
		if got, err := client.Read(handle, 0, len(data)); err != nil || len(got) != len(data) {
			f.t.Fatal(len(got), err)
		}
		took = append(took, time.Since(began)/2)
	}
	return took
}

// descriptors returns the number of descriptors that the proxy has open.
func (f *flooded) descriptors() int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", f.pid))
	must.Succeed(f.t, err)
	return len(entries)
}

// peak returns the proxy's peak memory in bytes.
func (f *flooded) peak() int {
	f.t.Helper()
	return process.Peak(f.t, f.pid)
}

// readdir returns a call that allows a reply of any size.
func readdir(xid uint32) []byte {
	e := sunrpc.AppendCall(nil, xid, nfs3.Program, nfs3.Version, nfs3.ProcReaddir)
	e.Opaque(make([]byte, 8))
	e.Uint64(0)
	e.Uint64(0)
	e.Uint32(math.MaxUint32)
	sunrpc.SealRecord(e.Bytes, 0, 0)
	return e.Bytes
}

// unqueued returns a call of the other RPC program, which no policy queues.
func unqueued(xid uint32) []byte {
	e := sunrpc.AppendCall(nil, xid, nfs3.MountProgram, nfs3.MountVersion, nfs3.MountExport)
	sunrpc.SealRecord(e.Bytes, 0, 0)
	return e.Bytes
}

func repeated(call func(xid uint32) []byte, step uint32) []byte {
	var out []byte
	for i := range uint32(1000) {
		out = append(out, call(i*step)...)
	}
	return out
}

// floods are the bytes that an offender's connection sends, repeatedly if they end in full calls.
// The count is the proxy's metric that shows a budget was hit. The offender reads no reply.
var floods = map[string]struct {
	bytes []byte
	again bool
	count string
}{
	"silence": {nil, false, "accepted_total"},
	"half record": {append(binary.BigEndian.AppendUint32(nil, 1<<31|(2<<20-100)), make([]byte, 1<<20+1000)...), false,
		"unfinished_total"},
	"half records in fragments": {append(sunrpc.Fragments(make([]byte, 1<<20), 1<<19)[:1<<19+4], 0, 16, 0, 0, 1), false,
		"unfinished_total"},
	"xids":     {repeated(unqueued, 1), true, "paused_total"},
	"one xid":  {repeated(unqueued, 0), true, "malformed_total"},
	"READDIR":  {repeated(readdir, 1), true, "paused_total"},
	"no calls": {binary.BigEndian.AppendUint32(nil, 7), true, "malformed_total"},
}

// flood keeps the given number of sending connections to the proxy open, forever.
func flood(to string, connections int, send []byte, again bool) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, offender)}}
	for range connections {
		go func() {
			for ; ; time.Sleep(20 * time.Millisecond) {
				conn, err := dialer.Dial("tcp", to)
				if err != nil {
					continue
				}
				for _, err = conn.Write(send); again && err == nil; {
					_, err = conn.Write(send)
				}
				if !again {
					_, _ = conn.Read(make([]byte, 1)) // until the proxy closes the connection
				}
				_ = conn.Close()
			}
		}()
	}
	select {}
}

// flood starts an offender at the lowest CPU priority, as if it had its own machine: only the proxy
// is shared.
func (f *flooded) flood(name string, connections int) {
	f.t.Helper()
	var p process.Process
	p.Start(f.t, []string{asOffender + "=" + name}, f.nfs, strconv.Itoa(connections))
	must.Succeed(f.t, syscall.Setpriority(syscall.PRIO_PROCESS, p.Command.Process.Pid, 19))
}

// count returns one of the proxy's metrics.
func (f *flooded) count(name string) float64 {
	f.t.Helper()
	answer, err := f.control.Get("http://proxy/metrics")
	must.Succeed(f.t, err)
	defer func() { _ = answer.Body.Close() }()
	page, err := io.ReadAll(answer.Body)
	must.Succeed(f.t, err)
	found := regexp.MustCompile(`(?m)^hotbed_nfsproxy_` + regexp.QuoteMeta(name) + ` (\S+)$`).FindSubmatch(page)
	if found == nil {
		f.t.Fatalf("there is no %s in %s", name, page)
	}
	value, err := strconv.ParseFloat(string(found[1]), 64)
	must.Succeed(f.t, err)
	return value
}

// TestOneClientsFloodStopsNoOther also checks new connections, and that the proxy stays within its
// descriptors and a workload's memory.
func TestOneClientsFloodStopsNoOther(t *testing.T) {
	for name, flood := range floods {
		for _, descriptors := range []int{64, 1024} {
			if descriptors == 64 && flood.again {
				continue
			}
			t.Run(fmt.Sprintf("%s, %d descriptors", name, descriptors), func(t *testing.T) {
				f := startFlooded(t, descriptors)
				f.serves(1)
				f.flood(name, 96)
				for f.count(flood.count) == 0 || descriptors == 64 && f.count(`connections_refused_total{workload="offender"}`) < 100 {
					f.serves(1)
				}
				f.serves(20)
				if n := f.descriptors(); n >= descriptors {
					t.Errorf("%d descriptors are open of %d", n, descriptors)
				}
				if n := f.count(`memory_bytes{workload="offender"}`); n > workloadMemory+4<<20 { // one call more
					t.Errorf("the offender has %v bytes", n)
				}
				if most := 3*workloadMemory + 80<<20; f.peak() > most { // three workloads, and the program
					t.Errorf("the proxy has had %d MB, more than %d", f.peak()>>20, most>>20)
				}
			})
		}
	}
}

// TestSoakFloods floods for longer, with more connections and with an SLO.
func TestSoakFloods(t *testing.T) {
	if os.Getenv("HOTBED_SOAK") == "" {
		t.Skip("a flood of minutes: HOTBED_SOAK=1 runs it")
	}
	const slo = 100 * time.Millisecond
	for name := range floods {
		t.Run(name, func(t *testing.T) {
			f := startFlooded(t, 4096)
			f.flood(name, 1500)
			var took []time.Duration
			for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
				took = append(took, f.serves(10)...)
			}
			slices.Sort(took)
			p99 := took[len(took)*99/100]
			t.Logf("%v connections; %d calls of the victim, median %v, 99th percentile %v; peak %d MB", f.count("accepted_total"), len(took),
				took[len(took)/2], p99, f.peak()>>20)
			if p99 > slo {
				t.Errorf("the victim's 99th percentile is %v, its SLO %v", p99, slo)
			}
			if most := 3*workloadMemory + 112<<20; f.peak() > most { // 512 connections of 64 KiB
				t.Errorf("the proxy has had %d MB, more than %d", f.peak()>>20, most>>20)
			}
		})
	}
}
