package server_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hotbed/dataplane/tests/must"
	"hotbed/dataplane/tests/process"
	"hotbed/dataplane/tests/servertest"
	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/filestore"
	"hotbed/dataplane/twochoice/protocol"
	"hotbed/dataplane/twochoice/server"
)

// asAgent makes the test program an agent on a folder, with this many descriptors.
const asAgent = "TWOCHOICE_TEST_DESCRIPTORS"

func TestMain(m *testing.M) {
	if text := os.Getenv(asAgent); text != "" {
		err := process.Limit(text)
		if err == nil {
			err = serveFolder(os.Args[1])
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serveFolder runs agent 0 of the cluster in a folder; its disk stalls while a file exists.
func serveFolder(path string) error {
	c, err := server.LoadCluster(filepath.Join(path, "cluster.json"))
	if err != nil {
		return err
	}
	folder, err := filestore.OpenFolder(filepath.Join(path, "agent"))
	if err != nil {
		return err
	}
	disk, found, err := filestore.OpenDisk(folder, 0)
	if err != nil {
		return err
	}
	s, err := server.StartOn(c, 0, stalling{disk, filepath.Join(path, "stall")}, found, os.Stderr)
	if err != nil {
		return err
	}
	return s.Wait()
}

type stalling struct {
	server.Store
	file string
}

func (s stalling) Do(op protocol.DiskOp) protocol.DiskDone {
	for {
		if _, err := os.Stat(s.file); err != nil {
			return s.Store.Do(op)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// agentProcess is an agent in its own process.
type agentProcess struct {
	server.Cluster
	process.Process
	t         *testing.T
	folder    string
	memoryMax int // as in the role's units
}

func startAgentProcess(t *testing.T, descriptors, memoryMax int) *agentProcess {
	t.Helper()
	a := &agentProcess{t: t, memoryMax: memoryMax}
	var path string
	a.Cluster, path = servertest.Configure(t, 1, func(c *server.Cluster) {
		c.Patience, c.Attempts = twochoice.Span(2*time.Second), 300
	})
	a.folder = filepath.Dir(path)
	a.start(descriptors)
	return a
}

func (a *agentProcess) start(descriptors int) {
	a.t.Helper()
	a.Start(a.t, []string{asAgent + "=" + strconv.Itoa(descriptors), "GOMEMLIMIT=" + strconv.Itoa(a.memoryMax*9/10)}, a.folder)
}

func (a *agentProcess) stall() {
	must.Succeed(a.t, os.WriteFile(filepath.Join(a.folder, "stall"), nil, 0o600))
}

func (a *agentProcess) resume() {
	must.Succeed(a.t, os.Remove(filepath.Join(a.folder, "stall")))
}

// peak returns the agent's peak memory in bytes.
func (a *agentProcess) peak() int {
	a.t.Helper()
	return process.Peak(a.t, a.Command.Process.Pid)
}

// peer returns a client with the key for any misuse. It reads only the agent's welcome.
func (a *agentProcess) peer() (conn *tls.Conn, welcome protocol.Message) {
	a.t.Helper()
	key, err := server.LoadKey(a.KeyFile)
	if err == nil {
		conn, err = tls.Dial("tcp", a.Agents[0], key.Config())
	}
	if err == nil {
		welcome, err = server.Greet(conn, server.Hello(protocol.Version, 0))
	}
	must.Succeed(a.t, err)
	a.t.Cleanup(func() { _ = conn.Close() })
	return conn, welcome
}

// hostile returns greedy peers: each resends its bytes until it is closed.
func (a *agentProcess) hostile() map[string][]byte {
	_, welcome := a.peer()
	big := uint64(a.memoryMax / 10)
	put := protocol.Message{Kind: protocol.Put, Call: 1, Object: "x", Write: protocol.WriteID{Client: 7, Seq: 1}, To: big,
		Data: make([]byte, big)}
	base := protocol.Message{Kind: protocol.GetBase, Call: 1, Object: "x", To: big, Epoch: welcome.Epoch}
	var registers, queries []byte
	for i := range uint64(1000) {
		registers = append(registers, server.Packet(protocol.Message{Kind: protocol.Register, Call: i + 1, Object: "x", To: 10,
			Write: protocol.WriteID{Client: 8, Seq: i + 1}, Low: i, Targets: []protocol.Node{0}}, 0)...)
		queries = append(queries, server.Packet(protocol.Message{Kind: protocol.Query, Call: i + 1, Object: "kept/0", To: 4096}, 0)...)
	}
	return map[string][]byte{"half messages": server.Packet(put, int(big)-1<<20), "reads": server.Packet(base, 0), "registers": registers,
		"queries": queries, "probes": server.Packet(protocol.Message{Kind: protocol.Probe, Call: 1, Size: 1 << 20}, 0)}
}

func (a *agentProcess) flood(connections int) (stop func()) {
	var all sync.WaitGroup
	var conns []*tls.Conn
	for name, bytes := range a.hostile() {
		for range connections {
			conn, _ := a.peer()
			conns = append(conns, conn)
			all.Go(func() {
				for {
					if _, err := conn.Write(bytes); err != nil || name == "half messages" {
						return
					}
				}
			})
		}
	}
	return sync.OnceFunc(func() {
		for _, conn := range conns {
			_ = conn.NetConn().Close()
		}
		all.Wait()
	})
}

// overload lets clients write to a stalled disk while hostile and slow peers send all they can. The
// agent stays within its memory. Then it is killed under load, and all acknowledged data survives.
func overload(t *testing.T, memoryMax, hostile, writes, size int) {
	a := startAgentProcess(t, 1024, memoryMax)
	const before = 5
	c := servertest.Client(a.t, a.Cluster)
	content := func(i int) []byte { return bytes.Repeat(fmt.Appendf(nil, "%7d\n", i), size/8) }
	for i := range before {
		_, err := c.Write(t.Context(), fmt.Sprintf("kept/%d", i), 0, content(i))
		must.Succeed(t, err)
	}
	a.stall()
	stop := a.flood(hostile)
	defer stop()
	var acknowledged atomic.Int64
	var all sync.WaitGroup
	for i := before; i < before+writes; i++ {
		all.Go(func() {
			if _, err := c.Write(t.Context(), fmt.Sprintf("kept/%d", i), 0, content(i)); err != nil {
				t.Errorf("write %d: %v", i, err)
				return
			}
			acknowledged.Add(1)
		})
	}
	for c.Refusals() < writes/2 && a.peak() < memoryMax {
		time.Sleep(10 * time.Millisecond)
	}
	prober, err := server.NewProber(a.Cluster)
	must.Succeed(t, err)
	defer prober.Close()
	if _, err := prober.Status(t.Context(), 0); err != nil {
		t.Errorf("amid the flood: %v", err)
	}
	a.resume()
	stop()
	for acknowledged.Load() < int64(writes/4) && !t.Failed() {
		time.Sleep(time.Millisecond)
	}
	peak := a.peak()
	t.Logf("the agent has had %d MB; %d of %d writes were acknowledged when it was killed; %d requests found no room", peak>>20,
		acknowledged.Load(), writes, c.Refusals())
	if peak >= memoryMax {
		t.Errorf("the agent has had %d MB, its MemoryMax is %d", peak>>20, memoryMax>>20)
	}
	a.Kill()
	a.start(1024)
	all.Wait()
	other := servertest.Client(a.t, a.Cluster)
	for i := range before + writes {
		if got, err := other.Read(t.Context(), fmt.Sprintf("kept/%d", i), 0, uint64(size)); err != nil || !bytes.Equal(got, content(i)) {
			t.Errorf("object %d: %v", i, err)
		}
	}
}

func TestAnAgentStaysWithinItsMemoryAndLosesNothingWhenItIsKilled(t *testing.T) {
	overload(t, 64<<20, 1, 80, 1<<20)
}

func TestSoakAnAgentStaysWithinItsMemory(t *testing.T) {
	if os.Getenv("HOTBED_SOAK") == "" {
		t.Skip("minutes of load: HOTBED_SOAK=1 runs it")
	}
	for range 3 {
		overload(t, 256<<20, 12, 200, 4<<20)
	}
}

func TestSilentConnectionsShutOutNoClientWithTheKey(t *testing.T) {
	a := startAgentProcess(t, 64, 64<<20)
	must.Succeed(t, servertest.Client(a.t, a.Cluster).Ready(t.Context()))
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 3)}}
	over := make(chan struct{})
	var all sync.WaitGroup
	var opened atomic.Int64
	for range 60 {
		all.Go(func() {
			for {
				conn, err := dialer.Dial("tcp", a.Agents[0])
				if err != nil {
					t.Error(err)
					return
				}
				opened.Add(1)
				go func() {
					<-over
					_ = conn.Close()
				}()
				_, _ = io.Copy(io.Discard, conn) // until the agent closes it
				_ = conn.Close()
				select {
				case <-over:
					return
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	for opened.Load() < 60 {
		time.Sleep(time.Millisecond)
	}
	for i := range 10 {
		c := servertest.Client(a.t, a.Cluster)
		name := fmt.Sprintf("f/%d", i)
		_, err := c.Write(t.Context(), name, 0, []byte("with the key"))
		must.Succeed(t, err)
		if got, err := c.Read(t.Context(), name, 0, 12); err != nil || string(got) != "with the key" {
			t.Fatal(string(got), err)
		}
		c.Close()
	}
	close(over)
	all.Wait()
}
