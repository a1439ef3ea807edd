package storagetest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// S3 is a store in memory that answers as S3 does, to requests whose signature is right.
type S3 struct {
	*httptest.Server
	// AccessKey and SecretKey sign.
	AccessKey, SecretKey, Region string
	// Domain has the buckets' names before it; empty: they stand in the path.
	Domain string

	mu      sync.Mutex
	buckets map[string]map[string][]byte
	hashed  int // payloads that were signed
}

// NewS3 starts one.
func NewS3(t testing.TB) *S3 {
	s := &S3{AccessKey: "test:tester", SecretKey: "test-key", Region: "us-east-1", buckets: map[string]map[string][]byte{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

// Hashed is how many payloads were signed.
func (s *S3) Hashed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hashed
}

func (s *S3) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if payload := r.Header.Get("X-Amz-Content-Sha256"); payload != "UNSIGNED-PAYLOAD" {
		if sum := sha256.Sum256(body); payload != hex.EncodeToString(sum[:]) {
			s3Error(w, http.StatusBadRequest, "XAmzContentSHA256Mismatch")
			return
		}
		if len(body) > 0 {
			s.hashed++
		}
	}
	if r.Method == http.MethodPut && r.ContentLength < 0 {
		s3Error(w, http.StatusLengthRequired, "MissingContentLength")
		return
	}
	if want, got := Signature(r, s.SecretKey), between(r.Header.Get("Authorization"), "Signature=", ""); want != got ||
		between(r.Header.Get("Authorization"), "Credential=", "/") != s.AccessKey {
		// AWS repeats here what was signed, and the access key.
		s3Error(w, http.StatusForbidden, "SignatureDoesNotMatch for "+s.AccessKey)
		return
	}
	path := strings.TrimPrefix(r.URL.Path, "/")
	if s.Domain != "" {
		bucket, found := strings.CutSuffix(r.Host, "."+s.Domain)
		if !found {
			s3Error(w, http.StatusBadRequest, "InvalidBucketName")
			return
		}
		path = strings.TrimSuffix(bucket+"/"+path, "/")
	}
	bucket, object, isObject := strings.Cut(path, "/")
	if isObject {
		s.object(w, r, bucket, object, body)
	} else {
		s.bucket(w, r, bucket, string(body))
	}
}

func s3Error(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?>`+"\n<Error><Code>%s</Code><Message>Because\nof that."+
		"</Message><Resource>/x</Resource></Error>", code)
}

func (s *S3) bucket(w http.ResponseWriter, r *http.Request, name, body string) {
	objects, found := s.buckets[name]
	located := strings.Contains(body, "<LocationConstraint>"+s.Region+"<")
	switch {
	case r.Method == http.MethodPut && located != (s.Region != "us-east-1"):
		s3Error(w, http.StatusBadRequest, "IllegalLocationConstraintException")
	case r.Method == http.MethodPut && found:
		s3Error(w, http.StatusConflict, "BucketAlreadyOwnedByYou")
	case r.Method == http.MethodPut:
		s.buckets[name] = map[string][]byte{}
	case !found:
		s3Error(w, http.StatusNotFound, "NoSuchBucket")
	case r.Method == http.MethodDelete && len(objects) > 0:
		s3Error(w, http.StatusConflict, "BucketNotEmpty")
	case r.Method == http.MethodDelete:
		delete(s.buckets, name)
		w.WriteHeader(http.StatusNoContent)
	case r.URL.Query().Get("list-type") != "2":
		s3Error(w, http.StatusNotImplemented, "NotImplemented")
	default:
		for _, name := range listed(objects, r.URL.Query().Get("prefix")) {
			_, _ = fmt.Fprintf(w, "<Contents><Key>%s</Key></Contents>", name)
		}
	}
}

func (s *S3) object(w http.ResponseWriter, r *http.Request, bucket, name string, body []byte) {
	objects, found := s.buckets[bucket]
	content, there := objects[name]
	switch {
	case !found:
		s3Error(w, http.StatusNotFound, "NoSuchBucket")
	case r.Method == http.MethodPut:
		objects[name] = body
	case r.Method == http.MethodDelete:
		delete(objects, name)
		w.WriteHeader(http.StatusNoContent)
	case !there:
		s3Error(w, http.StatusNotFound, "NoSuchKey")
	default:
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = w.Write(content)
	}
}

func between(text, begin, end string) string {
	_, text, _ = strings.Cut(text, begin)
	if end != "" {
		text, _, _ = strings.Cut(text, end)
	}
	return text
}

// Signature is what the signature of a request should be, told from the request as a server gets it: by
// AWS's description of version 4, for any signed headers.
func Signature(r *http.Request, secretKey string) string {
	authorization := r.Header.Get("Authorization")
	scope := between(authorization, "Credential=", ",")
	scope = scope[strings.Index(scope, "/")+1:] // the access key has none
	signed := between(authorization, "SignedHeaders=", ",")

	var query []string
	for key, values := range r.URL.Query() {
		for _, value := range values {
			query = append(query, encode(key)+"="+encode(value))
		}
	}
	slices.Sort(query)
	canonical := r.Method + "\n" + strings.ReplaceAll(encode(r.URL.Path), "%2F", "/") + "\n" +
		strings.Join(query, "&") + "\n"
	for name := range strings.SplitSeq(signed, ";") {
		value := r.Header.Get(name)
		if name == "host" {
			value = r.Host
		}
		canonical += name + ":" + strings.Join(strings.Fields(value), " ") + "\n"
	}
	canonical += "\n" + signed + "\n" + r.Header.Get("X-Amz-Content-Sha256")
	sum := sha256.Sum256([]byte(canonical))

	key := "AWS4" + secretKey
	for part := range strings.SplitSeq(scope, "/") {
		key = mac(key, part)
	}
	return hex.EncodeToString([]byte(mac(key, "AWS4-HMAC-SHA256\n"+r.Header.Get("X-Amz-Date")+"\n"+scope+"\n"+
		hex.EncodeToString(sum[:]))))
}

func mac(key, text string) string {
	m := hmac.New(sha256.New, []byte(key))
	_, _ = io.WriteString(m, text)
	return string(m.Sum(nil))
}

// encode is AWS's UriEncode, by way of net/url's.
func encode(text string) string {
	return strings.NewReplacer("+", "%20", "*", "%2A", "%7E", "~").Replace(url.QueryEscape(text))
}

func listed(objects map[string][]byte, prefix string) []string {
	var names []string
	for name := range objects {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
