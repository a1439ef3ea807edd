package server

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/big"
	"net"
	"os"
	"runtime/debug"
	"time"

	"hotbed/dataplane/internal/limits"
	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/protocol"
)

// Cluster is the shared configuration of agents and clients: the same file on all nodes.
type Cluster struct {
	// Agents lists the agents' addresses, "host:port", in the order of their numbers.
	Agents []string `json:"agents"`
	// KeyFile holds the shared secret.
	KeyFile string `json:"key_file"`
	// Copies is the number of copies of redirected data, 1 or 2.
	Copies int `json:"copies"`
	// ObjectSize is the maximum size of an object in bytes.
	ObjectSize uint64 `json:"object_size"`
	// Scheduler configures schedulers and load detectors.
	Scheduler twochoice.Parameters `json:"scheduler"`
	// Batch is the maximum number of a client node's writes in one collaborative probe.
	Batch int `json:"batch" limits:"1 1e9"`
	// Maintainer configures how an agent brings data home.
	Maintainer Maintainer `json:"maintainer"`
	// Patience is a client's wait for an answer before it retries, ProbePatience the wait for a
	// probe. Attempts limits the retries.
	Patience      twochoice.Span `json:"patience" limits:"1e-9 1e9"`
	ProbePatience twochoice.Span `json:"probe_patience" limits:"1e-9 1e9"`
	Attempts      int            `json:"attempts" limits:"1 1e9"`
	// Memory is an agent's memory in bytes for requests, their disk operations, and answers. Excess
	// requests get Busy. 0 means two fifths of GOMEMLIMIT, or 256 MiB without it.
	Memory int64 `json:"memory"`
	// Connections is an agent's maximum number of connections from clients and agents.
	Connections int `json:"connections" limits:"2 1048576"`
}

// Maintainer configures metadata maintainers (section V.C) and the sweep.
type Maintainer struct {
	twochoice.MaintainerParameters
	Off bool `json:"off"`
	// IdleOps is the maximum operations in flight of an idle node.
	IdleOps int `json:"idle_ops" limits:"0 1e9"`
	// Orphans is the age of a fragment at which its store asks if it is still needed.
	Orphans twochoice.Span `json:"orphans" limits:"1e-9 1e9"`
}

// leastMemory is the minimum memory for requests.
const leastMemory = 16 << 20

// RequestMemory returns the memory for requests of an agent in this process. The error is one
// sentence: the rest of the process would lack memory.
func (c Cluster) RequestMemory() (int64, error) {
	limit := debug.SetMemoryLimit(-1)
	switch {
	case limit == math.MaxInt64:
		return cmp.Or(c.Memory, 256<<20), nil
	case c.Memory > limit/2:
		return 0, fmt.Errorf("memory is %d in the cluster file, more than half of the %d bytes that GOMEMLIMIT leaves the agent; "+
			"lower the one or raise the other", c.Memory, limit)
	}
	return cmp.Or(c.Memory, limit/5*2), nil
}

// DefaultCluster returns a cluster without agents.
func DefaultCluster() Cluster {
	return Cluster{Copies: 1, ObjectSize: 1 << 40, Scheduler: twochoice.Defaults(twochoice.Both), Batch: 64,
		Maintainer: Maintainer{MaintainerParameters: twochoice.DefaultMaintainer(), Orphans: twochoice.Span(10 * time.Minute)},
		Patience:   twochoice.Span(5 * time.Second), ProbePatience: twochoice.Span(time.Second), Attempts: 24,
		Connections: 512}
}

// LoadCluster reads a cluster file; missing fields have defaults. The error is one sentence.
func LoadCluster(path string) (Cluster, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Cluster{}, fmt.Errorf("the cluster file cannot be read: %w", err)
	}
	c := DefaultCluster()
	if err := limits.Decode(text, &c); err != nil {
		return c, fmt.Errorf("the cluster file %s cannot be read: %w", path, err)
	}
	if err := c.Check(); err != nil {
		return c, fmt.Errorf("the cluster file %s: %w", path, err)
	}
	return c, nil
}

// Check returns the first defect, in one sentence.
func (c Cluster) Check() error {
	seen := map[string]bool{}
	for i, address := range c.Agents {
		if _, _, err := net.SplitHostPort(address); err != nil || seen[address] {
			return fmt.Errorf("agents[%d] is %q; write an address and a port of its own such as 10.0.0.1:7100", i, address)
		}
		seen[address] = true
	}
	switch {
	case len(c.Agents) == 0 || len(c.Agents) > 1<<20:
		return fmt.Errorf("agents names %d addresses; name each agent's, in the order of their numbers", len(c.Agents))
	case c.KeyFile == "":
		return fmt.Errorf("key_file is missing; name the file of the shared key")
	case c.Copies < 1 || c.Copies > protocol.MaxTargets || c.Copies > len(c.Agents):
		return fmt.Errorf("copies is %d; allowed is 1, or 2 with two agents or more", c.Copies)
	case c.ObjectSize < 1 || c.ObjectSize > protocol.MaxOffset:
		return fmt.Errorf("object_size is %d; allowed are 1 to %d bytes", c.ObjectSize, uint64(protocol.MaxOffset))
	case c.Scheduler.Scheduler == twochoice.Oracle:
		return fmt.Errorf("the scheduler is the oracle, which needs the true queues of all servers; that is for simulations")
	case c.Maintainer.Bytes > protocol.MaxData:
		return fmt.Errorf("maintainer.bytes is %d; allowed are up to %d", c.Maintainer.Bytes, protocol.MaxData)
	case c.Memory != 0 && (c.Memory < leastMemory || c.Memory < 2*int64(c.Maintainer.Bytes)):
		return fmt.Errorf("memory is %d; an agent needs at least %d bytes for requests, and twice maintainer.bytes; 0 leaves it to "+
			"the agent", c.Memory, leastMemory)
	}
	return cmp.Or(limits.Check(c), c.Scheduler.Validate())
}

// Home returns the home of an object.
func (c Cluster) Home(object string) protocol.Node { return protocol.HomeOf(object, len(c.Agents)) }

// Key is the shared secret of a cluster's agents and clients. Both ends of a connection prove that
// they have it, by TLS 1.3 with certificates of a key pair derived from it. Traffic is encrypted.
// The secret itself never leaves the file.
type Key struct{ certificate tls.Certificate }

// Lengths of a key in bytes.
const (
	leastKey = 32
	mostKey  = 4096
)

// LoadKey reads a key file: 32 to 4096 bytes that only its owner can read.
func LoadKey(path string) (*Key, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no key file %s; make one with `head -c 32 /dev/urandom`, mode 0600, the same "+
			"on all nodes", path)
	}
	if err != nil {
		return nil, fmt.Errorf("the key file cannot be read: %w", err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("the key file cannot be read: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("the key file %s is not a file", path)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("the key file %s can be read by others (mode %04o); allowed is 0600", path,
			info.Mode().Perm())
	case info.Size() < leastKey || info.Size() > mostKey:
		return nil, fmt.Errorf("the key file %s has %d bytes, allowed are %d to %d", path, info.Size(), leastKey, mostKey)
	}
	secret := make([]byte, info.Size())
	if _, err := file.ReadAt(secret, 0); err != nil {
		return nil, fmt.Errorf("the key file cannot be read: %w", err)
	}
	return NewKey(secret)
}

// NewKey derives a key from a secret.
func NewKey(secret []byte) (*Key, error) {
	seed, err := hkdf.Key(sha256.New, secret, nil, "hotbed two-choice, version 1", ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("no key can be derived: %w", err)
	}
	private := ed25519.NewKeyFromSeed(seed)
	// The certificate only carries the public key; any other key is not trusted.
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hotbed two-choice"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, fmt.Errorf("no certificate can be made of the key: %w", err)
	}
	return &Key{tls.Certificate{Certificate: [][]byte{certificate}, PrivateKey: private}}, nil
}

// config returns the TLS configuration of both ends of a connection.
func (k *Key) config() *tls.Config {
	own := k.certificate.PrivateKey.(ed25519.PrivateKey).Public().(ed25519.PublicKey)
	return &tls.Config{
		Certificates: []tls.Certificate{k.certificate},
		MinVersion:   tls.VersionTLS13,
		ClientAuth:   tls.RequireAnyClientCert,
		// Names and dates do not matter here; only possession of our private key does.
		InsecureSkipVerify:     true,
		SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 1 {
				if public, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey); ok && bytes.Equal(public, own) {
					return nil
				}
			}
			return errors.New("the peer has another key; give all nodes the same key file")
		},
	}
}
