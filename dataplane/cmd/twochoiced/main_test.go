package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/tests/must"
	"hotbed/dataplane/tests/process"
	"hotbed/dataplane/tests/servertest"
	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/protocol"
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
	server.Cluster
	t      *testing.T
	path   string
	folder string
	agents []process.Process
}

func startProcesses(t *testing.T, n int, change func(*server.Cluster)) *processes {
	t.Helper()
	p := &processes{t: t, folder: t.TempDir(), agents: make([]process.Process, n)}
	p.Cluster, p.path = servertest.Configure(t, n, change)
	for i := range p.agents {
		p.start(i)
	}
	return p
}

func (p *processes) start(i int) {
	p.t.Helper()
	p.agents[i].Start(p.t, []string{asAgent + "=1"}, "--cluster", p.path, "--node", strconv.Itoa(i), "--folder",
		filepath.Join(p.folder, strconv.Itoa(i)))
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
// Every object must hold its acknowledged version or a later unacknowledged one. In the end the
// maintainers bring everything home.
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
		client := servertest.Client(t, p.Cluster)
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
		p.agents[victim].Kill()
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
		p.start(victim)
	}
	all.Wait()
	reader := servertest.Client(t, p.Cluster)
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
	prober, err := server.NewProber(p.Cluster)
	must.Succeed(t, err)
	defer prober.Close()
	must.Come(t, "no entry and no fragment is left", func() bool {
		left := 0
		for node := range p.agents {
			stats, err := prober.Status(t.Context(), protocol.Node(node))
			must.Succeed(t, err)
			left += stats.Entries + stats.Fragments
		}
		return left == 0
	})
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
	client := servertest.Client(t, p.Cluster)
	objects := make([]object, writes)
	for i := range objects {
		objects[i].name = fmt.Sprintf("o/%d", i)
		_, err := client.Write(t.Context(), objects[i].name, 0, content(&objects[i], 1))
		must.Succeed(t, err)
	}
	p.agents[0].Kill()
	path := filepath.Join(p.folder, "0", "redirect.log")
	log := must.Read(t, path)
	last := len(bytes.TrimRight(log, "\x00")) - 1
	for _, flips := range [][]int{{last}, {last - 4096}, {last, last - 4096}} {
		spoilt := bytes.Clone(log)
		for _, at := range flips {
			spoilt[at] ^= 0x10
		}
		must.Succeed(t, os.WriteFile(path, spoilt, 0o600))
		p.start(0)
		if len(flips) == 2 {
			if err := p.agents[0].Command.Wait(); err == nil || !strings.Contains(p.agents[0].Log.String(), path+" is corrupt at byte") {
				t.Fatalf("%v: %s", err, p.agents[0].Log.String())
			}
			return
		}
		for i := range objects {
			data, err := client.Read(t.Context(), objects[i].name, 0, objectSize)
			if err != nil || !bytes.Equal(data, content(&objects[i], 1)) {
				t.Errorf("%s is not as it was acknowledged: %v", objects[i].name, err)
			}
		}
		p.agents[0].Kill()
	}
}

func TestMistakesOnTheCommandLineAreOneSentence(t *testing.T) {
	folder := t.TempDir()
	key, cluster := filepath.Join(folder, "key"), filepath.Join(folder, "cluster.json")
	must.Succeed(t, os.WriteFile(key, bytes.Repeat([]byte("s"), 32), 0o644),
		os.WriteFile(cluster, fmt.Appendf(nil, `{"agents": ["127.0.0.1:1"], "key_file": %q}`, key), 0o644))
	for want, args := range map[string][]string{
		"--cluster is missing": {"--node", "0", "--folder", folder},
		"--folder is missing":  {"--node", "0", "--cluster", cluster},
		"agents 0 to 0":        {"--node", "1", "--folder", folder, "--cluster", cluster},
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
	must.Succeed(t, os.Chmod(key, 0o600))
	checked := []string{"--node", "0", "--folder", folder, "--cluster", cluster, "--check"}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	must.Succeed(t, run(t.Context(), checked))
	debug.SetMemoryLimit(256 << 20)
	must.Succeed(t, run(t.Context(), checked))
	must.Succeed(t, os.WriteFile(cluster, fmt.Appendf(nil, `{"agents": ["127.0.0.1:1"], "key_file": %q, "memory": 200000000}`, key),
		0o644))
	if err := run(t.Context(), checked); err == nil || !strings.Contains(err.Error(), "GOMEMLIMIT") {
		t.Errorf("more memory for requests than the process may use: %v", err)
	}
}

// TestLockOfPool checks that the lock is in our own folder, follows no link and has one holder.
func TestLockOfPool(t *testing.T) {
	top := t.TempDir()
	folder := filepath.Join(top, "run")
	must.Succeed(t, os.Mkdir(folder, 0o777))
	lock, err := lockIn(folder, "twochoice.a")
	must.Succeed(t, err)
	if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("the folder has mode %v (%v)", info.Mode(), err)
	}
	if again, err := lockIn(folder, "twochoice.a"); err == nil {
		t.Fatalf("locked twice: %v", again.Name())
	}
	must.Succeed(t, lock.Close())
	theirs := filepath.Join(top, "theirs")
	must.Succeed(t, os.Symlink(theirs, filepath.Join(folder, "hotbed-twochoice.b.lock")))
	must.Succeed(t, os.Symlink(folder, filepath.Join(top, "link")))
	for _, in := range []string{folder, filepath.Join(top, "link")} {
		if lock, err := lockIn(in, "twochoice.b"); err == nil {
			t.Fatalf("%s was followed", lock.Name())
		}
	}
	if _, err := os.Lstat(theirs); err == nil {
		t.Fatal("a file was made through a link")
	}
}
