// Package s3 drives stores that speak Amazon's S3, as COSBench's storage type s3 does: Swift's s3api,
// Ceph's object gateway, and others. Requests are signed by version 4 of AWS's signature.
package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"hotbed/dataplane/cosbench/access"
	"hotbed/dataplane/cosbench/auth"
	"hotbed/dataplane/cosbench/storage"
	"hotbed/dataplane/cosbench/storage/internal/web"
	"hotbed/dataplane/internal/http1"
)

// Keys are COSBench's accesskey, secretkey, endpoint, path_style_access, timeout, and proxyhost and
// proxyport (an HTTP proxy; COSBench's samples have both without a value: none); of our own are
// region (us-east-1), sign_payload (true: the signature is also over the body, as far more CPU) and
// web.Keys.
var Keys = slices.Concat([]string{"accesskey", "secretkey", "endpoint", "path_style_access", "proxyhost", "proxyport",
	"region", "sign_payload"}, web.Keys)

const defaultRegion = "us-east-1"

// payloadMax is how large a body may be that has to be read before it is sent, in bytes.
const payloadMax = 5 << 30

type store struct {
	client      *web.Client
	signer      *signer
	host        string // of the endpoint, as it is sent
	region      string
	pathStyle   bool
	signPayload bool
	now         func() time.Time
	fields      [4]http1.Field
	path, what  []byte
	payload     bytes.Buffer
}

// Open makes a worker's connection; nothing is sent yet. The keys are the config's: a session has none.
func Open(config storage.Config, _ auth.Session) (storage.Storage, error) {
	endpoint, err := config.Required("endpoint")
	if err != nil {
		return nil, fmt.Errorf("storage type s3: %w (the store's URL)", err)
	}
	accessKey, secretKey := config.String("accesskey", ""), config.String("secretkey", "")
	if accessKey == "" || secretKey == "" {
		return nil, fmt.Errorf("storage type s3: accesskey and secretkey are missing in the config")
	}
	region, err := regionOf(config)
	if err != nil {
		return nil, err
	}
	s := &store{signer: newSigner(accessKey, secretKey, region), region: region, now: time.Now}
	if s.client, err = web.New("endpoint", endpoint, config, secretKey, accessKey); err != nil {
		return nil, err
	}
	s.host = s.client.Request.Host
	// As AWS's SDK does by itself, a store at an address has no names for its buckets.
	if s.pathStyle, err = config.Bool("path_style_access", false); err != nil {
		return nil, err
	}
	s.pathStyle = s.pathStyle || net.ParseIP(s.client.Name) != nil
	if s.signPayload, err = config.Bool("sign_payload", false); err != nil {
		return nil, err
	}
	return s, noProxy(config)
}

// Check says what of a config is wrong whoever uses it: credentials may come later.
func Check(config storage.Config) error {
	for _, key := range []string{"path_style_access", "sign_payload"} {
		if _, err := config.Bool(key, false); err != nil {
			return err
		}
	}
	if _, err := regionOf(config); err != nil {
		return err
	}
	if err := noProxy(config); err != nil {
		return err
	}
	return web.Check("endpoint", config)
}

func noProxy(config storage.Config) error {
	if config.String("proxyhost", "")+config.String("proxyport", "") != "" {
		return errors.New("storage type s3: an HTTP proxy (proxyhost, proxyport) is not supported; leave both empty")
	}
	return nil
}

func regionOf(config storage.Config) (string, error) {
	region := config.String("region", defaultRegion)
	if strings.Trim(region, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" || region == "" {
		return "", fmt.Errorf("storage type s3: region=%.40q is not a region's name, such as us-east-1", region)
	}
	return region, nil
}

// call is one request.
type call struct {
	method, bucket, object, query string
	body                          io.Reader
	length                        int64
	contentType                   string
}

func (s *store) do(ctx context.Context, q call) (*http1.Response, string, error) {
	s.what = append(append(append(s.what[:0], q.method...), ' '), q.bucket...)
	s.path = append(append(s.path[:0], s.client.Path...), '/')
	host := s.host
	if s.pathStyle {
		s.path = web.AppendEscaped(s.path, q.bucket, false)
	} else {
		host = q.bucket + "." + host
	}
	if q.object != "" {
		s.what = append(append(s.what, '/'), q.object...)
		if s.pathStyle {
			s.path = append(s.path, '/')
		}
		s.path = web.AppendEscaped(s.path, q.object, true)
	}
	what := string(s.what)
	payload, err := s.hash(&q, what)
	if err != nil {
		return nil, what, err
	}
	path := string(s.path)
	stamp, authorization := s.signer.sign(s.now(), q.method, path, q.query, host, payload)
	fields := append(s.fields[:0], http1.Field{Name: "X-Amz-Date", Value: stamp},
		http1.Field{Name: "X-Amz-Content-Sha256", Value: payload},
		http1.Field{Name: "Authorization", Value: authorization})
	if q.contentType != "" {
		fields = append(fields, http1.Field{Name: "Content-Type", Value: q.contentType})
	}
	if q.query != "" {
		path += "?" + q.query
	}
	r := &s.client.Request
	r.Method, r.Target, r.Host, r.Fields = q.method, path, host, fields
	r.Body, r.Length = q.body, q.length
	response, err := s.client.Do(ctx, what)
	return response, what, err
}

// emptyHash is the SHA-256 of no bytes.
const emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// hash says what is signed of the body. S3 wants to know a body's length before it comes: one of
// unknown length is read first, as AWS's SDK does for COSBench.
func (s *store) hash(q *call, what string) (string, error) {
	if q.body == nil {
		return emptyHash, nil
	}
	if q.length >= 0 && !s.signPayload {
		return unsigned, nil
	}
	limit := int64(payloadMax)
	if q.length >= 0 {
		limit = q.length
	}
	s.payload.Reset()
	n, err := s.payload.ReadFrom(io.LimitReader(q.body, limit))
	if err == nil && n < q.length {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return "", s.client.Failure(access.Client, "%s: the body cannot be read: %v", what, err)
	}
	q.body, q.length = bytes.NewReader(s.payload.Bytes()), n
	if !s.signPayload {
		return unsigned, nil
	}
	sum := sha256.Sum256(s.payload.Bytes())
	return hex.EncodeToString(sum[:]), nil
}

// plain does a request whose answer has nothing to read.
func (s *store) plain(ctx context.Context, q call, fine func(status int, code string) bool) error {
	response, what, err := s.do(ctx, q)
	if err != nil {
		return err
	}
	if response.Status/100 == 2 {
		return response.Close()
	}
	code := ""
	err = s.client.Refused(response, what, func(body []byte) string {
		var text string
		code, text = failure(body)
		return text
	})
	if fine != nil && fine(response.Status, code) {
		return nil
	}
	return err
}

// failure is what S3 says of an error, in XML: its code, and its code and message.
func failure(body []byte) (code, text string) {
	var said struct{ Code, Message string }
	// What was cut off behind both does not matter.
	_ = xml.NewDecoder(bytes.NewReader(body)).Decode(&said)
	return said.Code, strings.Trim(said.Code+": "+said.Message, ": ")
}

func isMissing(status int, _ string) bool { return status == 404 }

// CreateContainer makes a bucket, in the region of the config.
func (s *store) CreateContainer(ctx context.Context, bucket string) error {
	q := call{method: "PUT", bucket: bucket}
	if s.region != defaultRegion {
		text := `<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><LocationConstraint>` +
			s.region + `</LocationConstraint></CreateBucketConfiguration>`
		q.body, q.length = strings.NewReader(text), int64(len(text))
	}
	return s.plain(ctx, q, func(status int, code string) bool {
		return status == 409 && code == "BucketAlreadyOwnedByYou"
	})
}

func (s *store) DeleteContainer(ctx context.Context, bucket string) error {
	return s.plain(ctx, call{method: "DELETE", bucket: bucket}, isMissing)
}

func (s *store) Put(ctx context.Context, bucket, object string, body io.Reader, length int64) error {
	return s.plain(ctx, call{method: "PUT", bucket: bucket, object: object, body: body, length: length,
		contentType: "application/octet-stream"}, nil)
}

func (s *store) Delete(ctx context.Context, bucket, object string) error {
	return s.plain(ctx, call{method: "DELETE", bucket: bucket, object: object}, isMissing)
}

func (s *store) Get(ctx context.Context, bucket, object string) (io.ReadCloser, int64, error) {
	return s.read(ctx, call{method: "GET", bucket: bucket, object: object})
}

// List reads the names that S3 answers at once (1000), as version 2 of its listing.
func (s *store) List(ctx context.Context, bucket, prefix string) (int64, error) {
	q := call{method: "GET", bucket: bucket, query: "list-type=2"}
	if prefix != "" {
		q.query = string(web.AppendEscaped([]byte("list-type=2&prefix="), prefix, false))
	}
	body, _, err := s.read(ctx, q)
	if err != nil {
		return 0, err
	}
	return io.Copy(io.Discard, body)
}

func (s *store) read(ctx context.Context, q call) (io.ReadCloser, int64, error) {
	response, what, err := s.do(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	if response.Status != 200 {
		return nil, 0, s.client.Refused(response, what, func(body []byte) string {
			_, text := failure(body)
			return text
		})
	}
	return s.client.Body(response, what), response.Length, nil
}

func (s *store) Close() error { return s.client.Close() }
