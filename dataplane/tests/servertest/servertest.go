// Package servertest starts clusters of object servers' agents on loopback, in the test's process.
package servertest

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hotbed/dataplane/tests/must"
	"hotbed/dataplane/twochoice/protocol"
	"hotbed/dataplane/twochoice/server"
)

// Key writes a key file.
func Key(t testing.TB, secret string) string {
	t.Helper()
	return must.Write(t, "key", strings.Repeat(secret, 32))
}

// Configure returns the configuration of n agents, altered by the given functions, and its file.
func Configure(t testing.TB, n int, change ...func(*server.Cluster)) (c server.Cluster, path string) {
	t.Helper()
	c = server.DefaultCluster()
	c.KeyFile = Key(t, "k")
	for range n {
		// Use a port that was free a moment ago: the address must be known before the agents start.
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must.Succeed(t, err)
		c.Agents = append(c.Agents, l.Addr().String())
		_ = l.Close()
	}
	for _, alter := range change {
		alter(&c)
	}
	text, err := json.Marshal(c)
	must.Succeed(t, err)
	path = filepath.Join(t.TempDir(), "cluster.json")
	must.Succeed(t, os.WriteFile(path, text, 0o600))
	return c, path
}

// Agents is a cluster with its agents in this process, each with its own folder.
type Agents struct {
	server.Cluster
	Path    string           // of the cluster file
	Servers []*server.Server // nil: stopped
	t       testing.TB
	folders []string
}

// Start starts n agents, which end with the test.
func Start(t testing.TB, n int, change ...func(*server.Cluster)) *Agents {
	t.Helper()
	a := &Agents{t: t, Servers: make([]*server.Server, n)}
	a.Cluster, a.Path = Configure(t, n, change...)
	for i := range n {
		a.folders = append(a.folders, t.TempDir())
		a.Start(i)
		t.Cleanup(func() { a.Stop(i) })
	}
	return a
}

// Start starts an agent that was stopped.
func (a *Agents) Start(i int) {
	a.t.Helper()
	var err error
	if a.Servers[i], err = server.Start(a.Cluster, protocol.Node(i), a.folders[i], io.Discard); err != nil {
		a.t.Fatal(err)
	}
}

// Stop ends an agent.
func (a *Agents) Stop(i int) {
	a.t.Helper()
	if a.Servers[i] == nil {
		return
	}
	a.Servers[i].Stop()
	if err := a.Servers[i].Wait(); err != nil {
		a.t.Error(err)
	}
	a.Servers[i] = nil
}

// Client returns a new client of a cluster, which is closed with the test.
func Client(t testing.TB, c server.Cluster) *server.Client {
	t.Helper()
	client, err := server.Connect(c)
	must.Succeed(t, err)
	t.Cleanup(client.Close)
	return client
}

// Unmaintained switches off the maintainer, so redirects stay in place.
func Unmaintained(c *server.Cluster) { c.Maintainer.Off = true }
