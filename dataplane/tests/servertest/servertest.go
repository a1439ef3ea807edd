// Package servertest starts object servers' agents for the tests of their clients.
package servertest

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"hotbed/dataplane/twochoice/protocol"
	"hotbed/dataplane/twochoice/server"
)

// Start starts n agents on loopback in this process, each with its own folder; they end with the
// test. Change, if given, alters their configuration.
func Start(t testing.TB, n int, change ...func(*server.Cluster)) server.Cluster {
	t.Helper()
	c := server.DefaultCluster()
	c.KeyFile = filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(c.KeyFile, bytes.Repeat([]byte("k"), 32), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, alter := range change {
		alter(&c)
	}
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		c.Agents = append(c.Agents, l.Addr().String())
		_ = l.Close()
	}
	for i := range n {
		s, err := server.Start(c, protocol.Node(i), t.TempDir(), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			s.Stop()
			if err := s.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
	return c
}

// Unmaintained switches off the maintainer, so redirects stay in place.
func Unmaintained(c *server.Cluster) { c.Maintainer.Off = true }
