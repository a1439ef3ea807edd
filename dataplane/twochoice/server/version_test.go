package server

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/protocol"
)

// A peer of another version does not wait for its welcome: messages after its hello are ignored.
func TestWhatARefusedPeerSaysIsNotHeard(t *testing.T) {
	b := newTestbed(t, 2, nil)
	key, err := LoadKey(b.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	put := protocol.Message{Kind: protocol.Put, Object: "o", Write: protocol.WriteID{Client: 9, Seq: 1}, To: 1, Node: 1,
		Data: []byte("x")}
	for want, version := range []uint32{7, protocol.Version} {
		conn, err := tls.Dial("tcp", b.Agents[1], key.config())
		if err != nil {
			t.Fatal(err)
		}
		hello := protocol.Message{Kind: protocol.Hello, Version: version, Node: 1}
		var packets []byte
		for _, m := range []protocol.Message{hello, put} {
			text := append(m.Append(nil), m.Data...)
			packets = append(binary.BigEndian.AppendUint32(packets, uint32(len(text))), text...)
		}
		if _, err := conn.Write(packets); err != nil {
			t.Fatal(err)
		}
		heard := 0
		_ = newWire(conn, nil).read(func(m protocol.Message, _ int64, _ protocol.Code) error {
			if m.Kind == protocol.PutReply {
				heard++
				return io.EOF
			}
			return nil // until the agent closes the connection
		})
		_ = conn.Close()
		if fragments := b.stats(1).Fragments; heard != want || fragments != want {
			t.Errorf("version %d: %d answers, %d fragments", version, heard, fragments)
		}
	}
}

// An agent of another version may welcome us, or send an unreadable answer: clients must see it.
func TestAnAgentOfAnotherVersionIsNamed(t *testing.T) {
	newer := protocol.Message{Kind: protocol.Welcome, Version: protocol.Version + 1}
	for name, answer := range map[string][]byte{"welcome": newer.Append(nil), "unknown": {0xff, 0, 0}} {
		c := DefaultCluster()
		c.KeyFile = keyFile(t, "k")
		c.Patience, c.Attempts = twochoice.Span(100*time.Millisecond), 3
		key, err := LoadKey(c.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		l, err := tls.Listen("tcp", "127.0.0.1:0", key.config())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Read(make([]byte, 4096))
				_, _ = conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(answer))), answer...))
				_ = conn.(*tls.Conn).CloseWrite()
			}
		}()
		c.Agents = []string{l.Addr().String()}
		client, err := Connect(c)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for err == nil || !strings.Contains(err.Error(), fmt.Sprintf("does not speak version %d of the protocol", protocol.Version)) {
			if ctx.Err() != nil {
				t.Fatalf("%s: %v", name, err)
			}
			_, err = client.Write(ctx, "o", 0, []byte("x"))
		}
	}
}
