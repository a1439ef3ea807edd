package memnfs

import (
	"net/netip"
	"testing"

	"hotbed/dataplane/internal/nfsclient"
	"hotbed/dataplane/tests/must"
)

// Start starts a server, with an empty folder unless it has one. It ends with the test.
func Start(t testing.TB, s *Server) *Server {
	t.Helper()
	if s.FS == nil {
		s.FS = NewFS()
	}
	must.Succeed(t, s.Listen("127.0.0.1:0"))
	t.Cleanup(s.Close)
	return s
}

// Host returns 127.0.0.n, from which a test's client connects.
func Host(n int) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, byte(n)}) }

// Mount connects a client to a server, or to a proxy of it, and mounts the export. It ends with the
// test.
func Mount(t testing.TB, nfs, mount string, from netip.Addr) (c *nfsclient.Client, root []byte) {
	t.Helper()
	asking, err := nfsclient.Dial(mount, from)
	must.Succeed(t, err)
	defer asking.Close()
	root, err = asking.Mount(Export)
	must.Succeed(t, err)
	c, err = nfsclient.Dial(nfs, from)
	must.Succeed(t, err)
	t.Cleanup(c.Close)
	return c, root
}
