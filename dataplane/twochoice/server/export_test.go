package server

import (
	"crypto/tls"
	"encoding/binary"
	"io"

	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/protocol"
)

// Parts of the package, for tests.
const (
	LeastMemory     = leastMemory
	MostUnproven    = mostUnproven
	KeptDescriptors = keptDescriptors
)

// Refusals returns how often agents lacked memory for a client's requests.
func (c *Client) Refusals() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

// Reserved returns the memory reserved for requests in progress.
func (s *Server) Reserved() int64 { return s.gate.bytes.Used() }

// Config returns the TLS configuration of a connection.
func (k *Key) Config() *tls.Config { return k.config() }

// Shares returns shares.
func (c Cluster) Shares(descriptors int) (proven, unproven int, err error) {
	return c.shares(descriptors)
}

// Queues returns the bytes in transit to each agent.
func (o *Oracle) Queues() *twochoice.Queues { return o.queues }

// Hello is the message that opens a connection to a node.
func Hello(version uint32, node protocol.Node) protocol.Message {
	return protocol.Message{Kind: protocol.Hello, Version: version, Node: node}
}

// Greet sends a first message and returns its answer.
func Greet(conn *tls.Conn, hello protocol.Message) (protocol.Message, error) {
	return greet(newWire(conn, nil), hello)
}

// Packet returns a message's connection format, without its last bytes.
func Packet(m protocol.Message, without int) []byte {
	text := append(m.Append(nil), m.Data...)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text[:len(text)-without]...)
}

// Count returns the number of messages of a kind until the first of them, or until the peer closes.
func Count(conn *tls.Conn, kind protocol.Kind) (heard int) {
	_ = newWire(conn, nil).read(func(m protocol.Message, _ int64, _ protocol.Code) error {
		if m.Kind == kind {
			heard++
			return io.EOF
		}
		return nil
	})
	return heard
}
