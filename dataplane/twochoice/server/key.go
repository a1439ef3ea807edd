package server

import (
	"bytes"
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
	"math/big"
	"os"
	"time"
)

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
