package nfsproxy

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"hotbed/dataplane/internal/sunrpc"
	"hotbed/dataplane/tests/memnfs"
	"hotbed/dataplane/tests/must"
)

// by returns a configuration in which the server answers a connection's first call with serve.
func by(t *testing.T, serve func(server net.Conn)) func(*Config) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			go func() {
				if called(conn) == nil {
					serve(conn)
				}
			}()
		}
	}()
	return func(c *Config) { c.NFS.Server = listener.Addr().String() }
}

// replyOf returns a whole reply of the given size to the call with xid 1.
func replyOf(size int) []byte {
	record := make([]byte, 4+size)
	binary.BigEndian.PutUint32(record, 1<<31|uint32(size))
	binary.BigEndian.PutUint32(record[4:], 1)
	binary.BigEndian.PutUint32(record[8:], 1)
	return record
}

// called waits for a call.
func called(server net.Conn) error {
	reader := sunrpc.Reader{Most: 4096}
	for {
		n, err := server.Read(reader.Space())
		if err != nil {
			return err
		}
		reader.Filled(n)
		if _, record, err := reader.Next(); record != nil || err != nil {
			return err
		}
	}
}

func TestAReplyIsPassedOnWhenItIsWhole(t *testing.T) {
	half, rest := make(chan struct{}), make(chan struct{})
	record := replyOf(100_000)
	r := newRig(t, &memnfs.Server{}, `{"policy": "pm", "depth": 1}`, by(t, func(server net.Conn) {
		_, _ = server.Write(record[:50_000])
		close(half)
		<-rest
		_, _ = server.Write(record[50_000:])
	}))
	conn := r.raw(2)
	_, err := conn.Write(readCall(1, make([]byte, 16), 0, 100_000))
	must.Succeed(t, err)
	<-half
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := conn.Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("of half a reply came %d bytes (%v)", n, err)
	}
	close(rest)
	if xids, bytes := replies(t, conn, 1); xids[0] != 1 || bytes != 100_000 {
		t.Errorf("replies to %v, %d bytes", xids, bytes)
	}
}

func TestAWholeReplyDoesNotWaitForTheNextOnesEnd(t *testing.T) {
	r := newRig(t, &memnfs.Server{}, `{"policy": "pm", "depth": 2}`, by(t, func(server net.Conn) {
		next := replyOf(5000)
		_, _ = server.Write(append(replyOf(1000), next[:500]...)) // the rest never follows
	}))
	conn := r.raw(2)
	_, err := conn.Write(readCall(1, make([]byte, 16), 0, 1000))
	must.Succeed(t, err)
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.ReadFull(conn, make([]byte, 4+1000)); err != nil {
		t.Errorf("of a whole reply with half of another behind it not all came: %v", err)
	}
}

func TestALargeReplyIsNotKeptWhole(t *testing.T) {
	record := replyOf(mostKept + 1<<20)
	r := newRig(t, &memnfs.Server{}, `{"policy": "pm", "depth": 1}`, by(t, func(server net.Conn) {
		_, _ = server.Write(record[:mostKept+1000]) // the rest never follows
	}))
	conn := r.raw(2)
	_, err := conn.Write(readCall(1, make([]byte, 16), 0, 1<<20))
	must.Succeed(t, err)
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.ReadFull(conn, make([]byte, mostKept)); err != nil {
		t.Errorf("of a reply that is too large to be kept nothing came: %v", err)
	}
}
