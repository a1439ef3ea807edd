package nfsproxy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"hotbed/dataplane/internal/limits"
	"hotbed/dataplane/internal/nfs3"
	"hotbed/dataplane/internal/nfsclient"
	"hotbed/dataplane/internal/sunrpc"
	"hotbed/dataplane/tests/memnfs"
	"hotbed/dataplane/tests/must"
)

const profile = `{"type": "storageConstant", "base": 0.001, "readBandwidth": 1e8, "writeBandwidth": 5e7}`

// rig is an in-memory server, a proxy in front of it, and the proxy's control socket. Clients of
// workload "a" use 127.0.0.2, clients of "b" use 127.0.0.3; all others are unknown.
type rig struct {
	t       *testing.T
	server  *memnfs.Server
	proxy   *Proxy
	control *Control
	folder  string
	log     syncedBuffer
}

type syncedBuffer struct {
	mutex sync.Mutex
	text  strings.Builder
}

func (b *syncedBuffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.Write(p)
}

func (b *syncedBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.String()
}

// newRig starts a rig; the parameters are JSON without the workloads' names and clients.
func newRig(t *testing.T, server *memnfs.Server, policy string, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, server: server, folder: t.TempDir()}
	memnfs.Start(t, server)
	path := must.Write(t, "profile.json", profile)
	c := Config{NFS: Service{Listen: "127.0.0.1:0", Server: server.Address()},
		Mount:   &Service{Listen: "127.0.0.1:0", Server: server.Address()},
		Control: filepath.Join(r.folder, "control"), Metrics: "127.0.0.1:0", Profile: path,
		Parameters: parameters(policy)}
	for _, f := range change {
		f(&c)
	}
	must.Succeed(t, c.check())
	var err error
	if r.proxy, err = New(c, &r.log); err != nil {
		t.Fatal(err)
	}
	if r.control, err = NewControl(r.proxy); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- r.proxy.Run() }()
	t.Cleanup(func() {
		r.proxy.do(r.balanced)
		r.control.Close()
		r.proxy.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		r.server.Close()
	})
	return r
}

// balanced checks each workload's budget against its sessions. It must run on the proxy's thread.
func (r *rig) balanced() {
	want := make([]budget, len(r.proxy.workloads))
	for s := range r.proxy.sessions {
		b := &want[s.workload]
		b.connections++
		b.held += s.reserved + s.client.Pending()
		b.arriving += s.granted
	}
	for i, w := range r.proxy.workloads {
		if w.budget.connections != want[i].connections || w.budget.held != want[i].held || w.budget.arriving != want[i].arriving {
			r.t.Errorf("the budget of %s is %+v and its sessions have %+v", w.name, w.budget, want[i])
		}
	}
}

func parameters(text string) Parameters {
	var p Parameters
	if err := limits.Decode([]byte(text), &p); err != nil {
		panic(err)
	}
	if len(p.Workloads) == 0 {
		p.Workloads = make([]Workload, 2)
	}
	for i := range p.Workloads {
		p.Workloads[i].Name = string(rune('a' + i))
		p.Workloads[i].Clients = []string{fmt.Sprintf("127.0.0.%d", 2+i)}
	}
	return p
}

// client connects from 127.0.0.host and mounts the export, through the proxy.
func (r *rig) client(host int) (*nfsclient.Client, []byte) {
	r.t.Helper()
	at := r.proxy.Addresses()
	return memnfs.Mount(r.t, at[0].String(), at[1].String(), memnfs.Host(host))
}

// raw connects from 127.0.0.host to the proxy's NFS port.
func (r *rig) raw(host int) net.Conn {
	r.t.Helper()
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(memnfs.Host(host), 0))}
	conn, err := dialer.Dial("tcp", r.proxy.Addresses()[0].String())
	must.Succeed(r.t, err)
	r.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// file creates a file of the given size directly on the server.
func (r *rig) file(name string, size int) []byte {
	r.t.Helper()
	c, root := memnfs.Mount(r.t, r.server.Address(), r.server.Address(), netip.Addr{})
	defer c.Close()
	handle, err := c.Create(root, name)
	if err == nil {
		err = c.Truncate(handle, int64(size))
	}
	must.Succeed(r.t, err)
	return handle
}

// readCall returns a whole record that reads bytes of a file.
func readCall(xid uint32, handle []byte, offset, count int) []byte {
	e := sunrpc.AppendCall(nil, xid, nfs3.Program, nfs3.Version, nfs3.ProcRead)
	e.Opaque(handle)
	e.Uint64(uint64(offset))
	e.Uint32(uint32(count))
	sunrpc.SealRecord(e.Bytes, 0, 0)
	return e.Bytes
}

// replies reads the given number of replies and returns their xids and total length.
func replies(t *testing.T, conn net.Conn, count int) (xids []uint32, bytes int) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	reader := sunrpc.Reader{Most: 4 << 20}
	for len(xids) < count {
		n, err := conn.Read(reader.Space())
		if err != nil {
			t.Fatalf("after %d of %d replies: %v", len(xids), count, err)
		}
		reader.Filled(n)
		for {
			_, record, err := reader.Next()
			must.Succeed(t, err)
			if record == nil {
				break
			}
			xid, _, err := sunrpc.ParseReply(record)
			must.Succeed(t, err)
			xids = append(xids, xid)
			bytes += len(record)
		}
	}
	return xids, bytes
}

// closed returns true if the peer closes a connection.
func closed(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	_, err := io.Copy(io.Discard, conn)
	netErr, timeout := err.(net.Error)
	return !timeout || !netErr.Timeout()
}

func (r *rig) status() Status {
	var s Status
	r.proxy.do(func() { s = r.proxy.status() })
	return s
}

// eventually waits until a condition holds.
func (r *rig) eventually(what string, so func(Status) bool) {
	r.t.Helper()
	for range 6000 {
		if so(r.status()) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	r.t.Fatalf("it never came that %s; now %+v", what, r.status())
}

// ask sends a request to the control socket.
func (r *rig) ask(method, path, body string) (int, string) {
	r.t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(r.folder, "control"))
	}}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequest(method, "http://proxy"+path, strings.NewReader(body))
	must.Succeed(r.t, err)
	answer, err := client.Do(request)
	must.Succeed(r.t, err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	must.Succeed(r.t, err)
	return answer.StatusCode, string(text)
}

// put changes the parameters through the control socket.
func (r *rig) put(p Parameters) {
	r.t.Helper()
	text, err := json.Marshal(p)
	must.Succeed(r.t, err)
	if code, answer := r.ask("PUT", "/parameters", string(text)); code != 200 {
		r.t.Fatalf("PUT /parameters: %d %s", code, answer)
	}
}

// until holds back reads and writes at the server until a channel is closed.
func until(open <-chan struct{}) func(sunrpc.Call) <-chan struct{} {
	return func(c sunrpc.Call) <-chan struct{} {
		if c.Program == nfs3.Program && (c.Procedure == nfs3.ProcRead || c.Procedure == nfs3.ProcWrite) {
			return open
		}
		return nil
	}
}
