package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/server"
)

// asAgent makes the test program an agent, so that a test can kill it.
const asAgent = "TWOCHOICED_TEST_AGENT"

func TestMain(m *testing.M) {
	if os.Getenv(asAgent) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// processes is a cluster on loopback with one process per agent.
type processes struct {
	t       *testing.T
	path    string
	cluster server.Cluster
	folder  string
	agents  []*exec.Cmd
	logs    []*bytes.Buffer
}

func startProcesses(t *testing.T, n int, change func(*server.Cluster)) *processes {
	t.Helper()
	p := &processes{t: t, folder: t.TempDir(), cluster: server.DefaultCluster(), agents: make([]*exec.Cmd, n)}
	p.cluster.KeyFile = filepath.Join(p.folder, "key")
	if err := os.WriteFile(p.cluster.KeyFile, bytes.Repeat([]byte("s"), 32), 0o600); err != nil {
		t.Fatal(err)
	}
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p.cluster.Agents = append(p.cluster.Agents, l.Addr().String())
		_ = l.Close()
		p.logs = append(p.logs, &bytes.Buffer{})
	}
	change(&p.cluster)
	text, err := json.Marshal(p.cluster)
	if err != nil {
		t.Fatal(err)
	}
	p.path = filepath.Join(p.folder, "cluster.json")
	if err := os.WriteFile(p.path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range p.agents {
		p.start(i)
	}
	t.Cleanup(func() {
		for i := range p.agents {
			p.kill(i)
			if t.Failed() {
				t.Logf("agent %d said:\n%s", i, p.logs[i])
			}
		}
	})
	return p
}

func (p *processes) start(i int) {
	p.t.Helper()
	command := exec.Command(os.Args[0], "--cluster", p.path, "--node", strconv.Itoa(i), "--folder",
		filepath.Join(p.folder, strconv.Itoa(i)))
	command.Env = append(os.Environ(), asAgent+"=1")
	command.Stderr = p.logs[i]
	if err := command.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.agents[i] = command
}

// kill ends an agent as kill -9 does.
func (p *processes) kill(i int) {
	_ = p.agents[i].Process.Kill()
	_ = p.agents[i].Wait()
}

// object is an object that one goroutine of the test wrote, version by version.
type object struct {
	name                string
	acknowledged, tried uint32
}

const objectSize = 40_000

// content returns an object's bytes in a version: every 4-byte word depends on the version.
func content(o *object, version uint32) []byte {
	out := make([]byte, objectSize)
	for i := 0; i+4 <= len(out); i += 4 {
		binary.LittleEndian.PutUint32(out[i:], version*2654435761+uint32(i)+uint32(len(o.name)))
	}
	return out
}

// TestEveryAcknowledgedObjectSurvivesKilledAgents repeats kill -9 during writes and maintenance.
// Every object must hold its acknowledged version or a later unacknowledged one.
func TestEveryAcknowledgedObjectSurvivesKilledAgents(t *testing.T) {
	p := startProcesses(t, 4, func(c *server.Cluster) {
		c.Patience, c.ProbePatience = twochoice.Span(300*time.Millisecond), twochoice.Span(50*time.Millisecond)
		c.Attempts = 200
		c.Scheduler.Choices = twochoice.RandomRandom
		c.Maintainer.IdleOps = 100
		c.Maintainer.Orphans = twochoice.Span(500 * time.Millisecond)
	})
	const clients, writers, versions, kills = 3, 4, 12, 8
	var all sync.WaitGroup
	objects := make([]*object, clients*writers*2)
	for c := range clients {
		client, err := server.Connect(p.cluster)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		for w := range writers {
			mine := []*object{{name: fmt.Sprintf("o%d/%d", c, w)}, {name: fmt.Sprintf("longer%d/%d", c, w)}}
			copy(objects[2*(c*writers+w):], mine)
			all.Go(func() {
				for range versions {
					for _, o := range mine {
						o.tried++
						_, err := client.Write(t.Context(), o.name, 0, content(o, o.tried))
						var undecided *server.UndecidedError
						switch {
						case err == nil:
							o.acknowledged = o.tried
						case !errors.As(err, &undecided):
							t.Errorf("%s version %d: %v", o.name, o.tried, err)
							return
						}
					}
				}
			})
		}
	}
	for range kills {
		victim := rand.IntN(len(p.agents))
		time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond)
		p.kill(victim)
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
		p.start(victim)
	}
	all.Wait()
	reader, err := server.Connect(p.cluster)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	acknowledged := 0
	for _, o := range objects {
		acknowledged += int(o.acknowledged)
		data, err := reader.Read(t.Context(), o.name, 0, objectSize)
		if err != nil {
			t.Errorf("%s, acknowledged at version %d: %v", o.name, o.acknowledged, err)
			continue
		}
		found := false
		for v := o.acknowledged; v <= o.tried; v++ {
			found = found || bytes.Equal(data, content(o, v))
		}
		if !found {
			t.Errorf("%s is of none of the versions %d to %d", o.name, o.acknowledged, o.tried)
		}
	}
	if acknowledged < len(objects)*versions/2 {
		t.Errorf("only up to version %d were acknowledged on average", acknowledged/len(objects))
	}
}

// A bit of the last of five acknowledged writes' log frames flips after kill -9, in one copy: all
// writes are read back. If it flips in both copies, the agent refuses to start and names the log.
func TestAFlippedBitInTheLastFrameLosesNothing(t *testing.T) {
	const writes = 5
	p := startProcesses(t, 1, func(c *server.Cluster) {
		c.Patience, c.Attempts = twochoice.Span(200*time.Millisecond), 200
		c.Scheduler.Scheduler = twochoice.Fixed
		c.Maintainer.Off = true
	})
	client, err := server.Connect(p.cluster)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	objects := make([]object, writes)
	for i := range objects {
		objects[i].name = fmt.Sprintf("o/%d", i)
		if _, err := client.Write(t.Context(), objects[i].name, 0, content(&objects[i], 1)); err != nil {
			t.Fatal(err)
		}
	}
	p.kill(0)
	path := filepath.Join(p.folder, "0", "redirect.log")
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := len(bytes.TrimRight(log, "\x00")) - 1
	for _, flips := range [][]int{{last}, {last - 4096}, {last, last - 4096}} {
		spoilt := bytes.Clone(log)
		for _, at := range flips {
			spoilt[at] ^= 0x10
		}
		if err := os.WriteFile(path, spoilt, 0o600); err != nil {
			t.Fatal(err)
		}
		p.start(0)
		if len(flips) == 2 {
			if err := p.agents[0].Wait(); err == nil || !strings.Contains(p.logs[0].String(), path+" is corrupt at byte") {
				t.Fatalf("%v: %s", err, p.logs[0])
			}
			return
		}
		for i := range objects {
			data, err := client.Read(t.Context(), objects[i].name, 0, objectSize)
			if err != nil || !bytes.Equal(data, content(&objects[i], 1)) {
				t.Errorf("%s is not as it was acknowledged: %v", objects[i].name, err)
			}
		}
		p.kill(0)
	}
}

func TestMistakesOnTheCommandLineAreOneSentence(t *testing.T) {
	folder := t.TempDir()
	key, cluster := filepath.Join(folder, "key"), filepath.Join(folder, "cluster.json")
	if err := errors.Join(os.WriteFile(key, bytes.Repeat([]byte("s"), 32), 0o644),
		os.WriteFile(cluster, fmt.Appendf(nil, `{"agents": ["127.0.0.1:1"], "key_file": %q}`, key), 0o644)); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"--cluster is missing": {"--node", "0", "--folder", folder},
		"--folder is missing":  {"--node", "0", "--cluster", cluster},
		"agents 0 to 0":        {"--node", "1", "--folder", folder, "--cluster", cluster},
		"unexpected argument":  {"x"},
		"not defined":          {"--colour"},
		"cannot be read":       {"--node", "0", "--folder", folder, "--cluster", folder + "/none"},
		"allowed is 0600":      {"--node", "0", "--folder", folder, "--cluster", cluster},
	} {
		err := run(t.Context(), args)
		var usage command.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", args, err)
		}
	}
	if err := os.Chmod(key, 0o600); err != nil {
		t.Fatal(err)
	}
	checked := []string{"--node", "0", "--folder", folder, "--cluster", cluster, "--check"}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	if err := run(t.Context(), checked); err != nil {
		t.Error(err)
	}
	debug.SetMemoryLimit(256 << 20)
	if err := run(t.Context(), checked); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(cluster, fmt.Appendf(nil, `{"agents": ["127.0.0.1:1"], "key_file": %q, "memory": 200000000}`, key),
		0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), checked); err == nil || !strings.Contains(err.Error(), "GOMEMLIMIT") {
		t.Errorf("more memory for requests than the process may use: %v", err)
	}
}
