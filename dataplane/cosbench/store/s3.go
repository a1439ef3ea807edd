package store

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"hotbed/dataplane/internal/http1"
)

// s3Keys are COSBench's accesskey, secretkey, endpoint, path_style_access, timeout, and proxyhost and
// proxyport (an HTTP proxy; COSBench's samples have both without a value: none). Not COSBench's are
// region (us-east-1) and those of webKeys.
var s3Keys = slices.Concat([]string{"accesskey", "secretkey", "endpoint", "path_style_access", "proxyhost", "proxyport",
	"region"}, webKeys)

const (
	// payloadMax is the largest body of unknown length that is read before it is sent, in bytes.
	payloadMax = 5 << 30
	// emptyHash is the SHA-256 of no bytes; unsigned replaces the hash of a body.
	emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	unsigned  = "UNSIGNED-PAYLOAD"
)

// s3 is one worker's connection to a store that speaks Amazon's S3, such as Swift's s3api and Ceph's
// object gateway. Requests carry version 4 of AWS's signature.
type s3 struct {
	*web
	signer    *signer
	host      string // of the endpoint, as it is sent
	pathStyle bool
	now       func() time.Time
	code      string // of the latest error that the store reported
	payload   bytes.Buffer
}

// newS3 reads the config. The S3 keys are in the config, not in the session.
func newS3(config Config) (Opener, error) {
	settings, err := readWeb("endpoint", config)
	if err != nil {
		return nil, err
	}
	made := s3{now: time.Now}
	if made.pathStyle, err = config.Bool("path_style_access", false); err != nil {
		return nil, err
	}
	if config.Text("proxyhost", "")+config.Text("proxyport", "") != "" {
		return nil, errors.New("storage type s3: an HTTP proxy (proxyhost, proxyport) is not supported; leave both empty")
	}
	return func(Session) (Storage, error) {
		s := made
		endpoint, err := config.Required("endpoint")
		if err != nil {
			return nil, fmt.Errorf("storage type s3: %w (the store's URL)", err)
		}
		accessKey, secretKey := config.Text("accesskey", ""), config.Text("secretkey", "")
		if accessKey == "" || secretKey == "" {
			return nil, errors.New("storage type s3: accesskey and secretkey are missing in the config")
		}
		s.signer = newSigner(accessKey, secretKey, config.Text("region", "us-east-1"))
		if s.web, err = settings.open("endpoint", endpoint, s.failed, secretKey, accessKey); err != nil {
			return nil, err
		}
		s.host = s.request.Host
		// As in AWS's SDK: a store at an IP address has no bucket host names.
		s.pathStyle = s.pathStyle || net.ParseIP(s.name) != nil
		return &s, nil
	}, nil
}

func (s *s3) do(ctx context.Context, q call) (*http1.Response, string, error) {
	s.what = append(append(append(s.what[:0], q.method...), ' '), q.container...)
	s.target = append(append(s.target[:0], s.path...), '/')
	host := s.host
	if s.pathStyle {
		s.target = appendEscaped(s.target, q.container, false)
	} else {
		host = q.container + "." + host
	}
	if q.object != "" {
		s.what = append(append(s.what, '/'), q.object...)
		if s.pathStyle {
			s.target = append(s.target, '/')
		}
		s.target = appendEscaped(s.target, q.object, true)
	}
	what := string(s.what)
	payload, err := s.measure(&q, what)
	if err != nil {
		return nil, what, err
	}
	target := string(s.target)
	stamp, authorization := s.signer.sign(s.now(), q.method, target, q.query, host, payload)
	s.fields = append(s.fields[:0], http1.Field{Name: "X-Amz-Date", Value: stamp},
		http1.Field{Name: "X-Amz-Content-Sha256", Value: payload},
		http1.Field{Name: "Authorization", Value: authorization})
	if q.extra.Name != "" {
		s.fields = append(s.fields, q.extra)
	}
	if q.query != "" {
		target += "?" + q.query
	}
	r := &s.request
	r.Method, r.Target, r.Host, r.Fields = q.method, target, host, s.fields
	response, err := s.web.do(ctx, what, q)
	return response, what, err
}

// measure returns the payload hash to sign. S3 requires a body's length in advance: a body of unknown
// length is read first, as AWS's SDK does for COSBench.
func (s *s3) measure(q *call, what string) (string, error) {
	if q.body == nil {
		return emptyHash, nil
	}
	if q.length < 0 {
		s.payload.Reset()
		n, err := s.payload.ReadFrom(io.LimitReader(q.body, payloadMax))
		if err != nil {
			return "", s.failure(Other, "%s: the body cannot be read: %v", what, err)
		}
		q.body, q.length = bytes.NewReader(s.payload.Bytes()), n
	}
	return unsigned, nil
}

// failed parses an XML error: it stores the code and returns code and message.
func (s *s3) failed(body []byte) string {
	var said struct{ Code, Message string }
	// The text may be cut off after both.
	_ = xml.NewDecoder(bytes.NewReader(body)).Decode(&said)
	s.code = said.Code
	return strings.Trim(said.Code+": "+said.Message, ": ")
}

// plain sends a request with an answer that has nothing to read. The status `fine` is a success if
// the error has this code, or any code if the code is empty.
func (s *s3) plain(ctx context.Context, q call, fine int, code string) error {
	response, what, err := s.do(ctx, q)
	if err != nil {
		return err
	}
	status := response.Status
	if status/100 == 2 {
		return response.Close()
	}
	err = s.refused(response, what)
	if status == fine && (code == "" || code == s.code) {
		return nil
	}
	return err
}

func (s *s3) CreateContainer(ctx context.Context, bucket string) error {
	return s.plain(ctx, call{method: "PUT", container: bucket}, 409, "BucketAlreadyOwnedByYou")
}

func (s *s3) DeleteContainer(ctx context.Context, bucket string) error {
	return s.plain(ctx, call{method: "DELETE", container: bucket}, 404, "")
}

func (s *s3) Put(ctx context.Context, bucket, object string, body io.ReadSeeker, length int64) error {
	return s.plain(ctx, call{method: "PUT", container: bucket, object: object, body: body, length: length,
		extra: http1.Field{Name: "Content-Type", Value: "application/octet-stream"}}, 0, "")
}

func (s *s3) Delete(ctx context.Context, bucket, object string) error {
	return s.plain(ctx, call{method: "DELETE", container: bucket, object: object}, 404, "")
}

func (s *s3) Get(ctx context.Context, bucket, object string) (io.ReadCloser, error) {
	return s.read(ctx, call{method: "GET", container: bucket, object: object})
}

// List reads the names of one S3 answer (1000), with version 2 of its listing.
func (s *s3) List(ctx context.Context, bucket, prefix string) (int64, error) {
	q := call{method: "GET", container: bucket, query: "list-type=2"}
	if prefix != "" {
		q.query = string(appendEscaped([]byte("list-type=2&prefix="), prefix, false))
	}
	body, err := s.read(ctx, q)
	if err != nil {
		return 0, err
	}
	return io.Copy(io.Discard, body)
}

func (s *s3) read(ctx context.Context, q call) (io.ReadCloser, error) {
	response, what, err := s.do(ctx, q)
	if err != nil {
		return nil, err
	}
	if response.Status != 200 {
		return nil, s.refused(response, what)
	}
	return s.answer(response, what), nil
}

// signer signs requests with version 4 of AWS's signature (AWS4-HMAC-SHA256). It derives the key
// once a day. It is not for concurrent use.
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
	stampForm = "20060102T150405Z"
	dayLen    = len("20060102")
	// signedHeaders are all signed headers, in order.
	signedHeaders = "host;x-amz-content-sha256;x-amz-date"
)

func newSigner(accessKey, secretKey, region string) *signer {
	return &signer{accessKey: accessKey, secretKey: secretKey, region: region, sum: sha256.New()}
}

// sign returns the values of X-Amz-Date and Authorization. Path and query are as sent: escaped, the
// query's parts sorted, each with its "=". Payload is the body's SHA-256 in hex, or unsigned.
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
	return append(b, "s3/aws4_request"...)
}

// derive derives a day's key.
func (s *signer) derive(day string) {
	key := []byte("AWS4" + s.secretKey)
	for _, part := range []string{day, s.region, "s3", "aws4_request"} {
		mac := hmac.New(sha256.New, key)
		_, _ = mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	s.key, s.day = hmac.New(sha256.New, key), day
}
