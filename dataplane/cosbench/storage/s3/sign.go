package s3

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"time"
)

// signer signs requests by version 4 of AWS's signature (AWS4-HMAC-SHA256). The key is derived once a
// day. It is not for concurrent use.
type signer struct {
	accessKey, secretKey, region string

	day    string // of key
	key    hash.Hash
	sum    hash.Hash
	buffer []byte
	digest []byte
}

const (
	algorithm = "AWS4-HMAC-SHA256"
	service   = "s3"
	// unsigned stands for the payload's hash where the payload is not signed.
	unsigned  = "UNSIGNED-PAYLOAD"
	stampForm = "20060102T150405Z"
	dayLen    = len("20060102")
)

// signedHeaders are all that are signed, in their order.
const signedHeaders = "host;x-amz-content-sha256;x-amz-date"

func newSigner(accessKey, secretKey, region string) *signer {
	return &signer{accessKey: accessKey, secretKey: secretKey, region: region, sum: sha256.New()}
}

// sign returns the values of X-Amz-Date and Authorization. Path and query are as they are sent: escaped,
// the query's parts sorted, each with its "=". Payload is the body's SHA-256 in hex, or unsigned.
func (s *signer) sign(now time.Time, method, path, query, host, payload string) (stamp, authorization string) {
	stamp = now.UTC().Format(stampForm)
	day := stamp[:dayLen]
	if day != s.day {
		s.derive(day)
	}
	b := append(s.buffer[:0], method...)
	b = appendLine(b, path)
	b = appendLine(b, query)
	b = appendLine(b, "host:"+host)
	b = appendLine(b, "x-amz-content-sha256:"+payload)
	b = appendLine(b, "x-amz-date:"+stamp)
	b = appendLine(b, "")
	b = appendLine(b, signedHeaders)
	b = appendLine(b, payload)
	s.sum.Reset()
	_, _ = s.sum.Write(b) // never fails
	s.digest = s.sum.Sum(s.digest[:0])

	b = append(b[:0], algorithm...)
	b = appendLine(b, stamp)
	b = append(b, '\n')
	b = s.appendScope(b, day)
	b = append(b, '\n')
	b = hex.AppendEncode(b, s.digest)
	s.key.Reset()
	_, _ = s.key.Write(b)
	s.digest = s.key.Sum(s.digest[:0])

	b = append(b[:0], algorithm+" Credential="...)
	b = append(append(b, s.accessKey...), '/')
	b = s.appendScope(b, day)
	b = append(b, ",SignedHeaders="+signedHeaders+",Signature="...)
	b = hex.AppendEncode(b, s.digest)
	s.buffer = b
	return stamp, string(b)
}

func appendLine(b []byte, text string) []byte { return append(append(b, '\n'), text...) }

func (s *signer) appendScope(b []byte, day string) []byte {
	b = append(append(b, day...), '/')
	b = append(append(b, s.region...), '/')
	return append(b, service+"/aws4_request"...)
}

// derive makes a day's key.
func (s *signer) derive(day string) {
	key := []byte("AWS4" + s.secretKey)
	for _, part := range []string{day, s.region, service, "aws4_request"} {
		mac := hmac.New(sha256.New, key)
		_, _ = mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	s.key, s.day = hmac.New(sha256.New, key), day
}
