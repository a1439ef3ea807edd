package store

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"hotbed/dataplane/tests/memswift"
	"hotbed/dataplane/tests/must"
)

// names are object names that a path must escape.
var names = []string{"myobjects1", "a b", "ü-日本", "a/b//c", "100%", "q?x=1&y=2#z", "+;,:@=$!*'()", "~._-",
	"back\\slash"}

// contract checks the promises of Storage, in a container with no other user.
func contract(t *testing.T, s Storage, container string) {
	ctx := t.Context()
	must.Succeed(t, s.DeleteContainer(ctx, container)) // a missing container is no error
	_, err := s.Get(ctx, container, "x")
	hasKind(t, err, NotFound)
	hasKind(t, s.Put(ctx, container, "x", strings.NewReader("x"), 1), NotFound)
	_, err = s.List(ctx, container, "")
	hasKind(t, err, NotFound)
	must.Succeed(t, s.CreateContainer(ctx, container))
	must.Succeed(t, s.CreateContainer(ctx, container)) // an existing container is no error
	empty, err := s.List(ctx, container, "")
	must.Succeed(t, err)

	random := rand.NewChaCha8([32]byte{1})
	for i, size := range []int{0, 1, 1000, 64_000, 300_000, 5_000_000} {
		content := make([]byte, size)
		_, _ = random.Read(content)
		for _, length := range []int64{int64(size), -1} {
			must.Succeed(t, s.Put(ctx, container, names[i], bytes.NewReader(content), length))
			same(ctx, t, s, container, names[i], content)
		}
		content = content[:size/2] // less content than the object that it replaces
		must.Succeed(t, s.Put(ctx, container, names[i], bytes.NewReader(content), int64(len(content))))
		same(ctx, t, s, container, names[i], content)
	}
	for _, name := range names {
		must.Succeed(t, s.Put(ctx, container, name, strings.NewReader(name), int64(len(name))))
	}
	for _, name := range names {
		same(ctx, t, s, container, name, []byte(name))
	}
	all, err := s.List(ctx, container, "")
	must.Succeed(t, err)
	some, err := s.List(ctx, container, "a b")
	must.Succeed(t, err)
	if !(empty < some && some < all) {
		t.Errorf("listings have %d, %d and %d bytes", empty, some, all)
	}
	body, err := s.Get(ctx, container, names[0]) // a body that is not read
	must.Succeed(t, err)
	must.Succeed(t, body.Close())

	_, err = s.Get(ctx, container, "nothing")
	hasKind(t, err, NotFound)
	hasKind(t, s.Put(ctx, container, "short", strings.NewReader("abc"), 4), Other)
	hasKind(t, s.DeleteContainer(ctx, container), Other)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	err = s.Put(ended, container, "late", strings.NewReader("abc"), 3)
	if hasKind(t, err, Other); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for _, name := range names {
		must.Succeed(t, s.Delete(ctx, container, name))
	}
	must.Succeed(t, s.Delete(ctx, container, names[0])) // a missing object is no error
	_, err = s.Get(ctx, container, names[0])
	hasKind(t, err, NotFound)
	must.Succeed(t, s.DeleteContainer(ctx, container))
	must.Succeed(t, s.DeleteContainer(ctx, container))
}

// same reads an object and compares it.
func same(ctx context.Context, t *testing.T, s Storage, container, name string, want []byte) {
	t.Helper()
	body, err := s.Get(ctx, container, name)
	must.Succeed(t, err)
	sum := sha256.New()
	n, err := io.Copy(sum, body)
	must.Succeed(t, err, body.Close())
	if wanted := sha256.Sum256(want); n != int64(len(want)) || !bytes.Equal(sum.Sum(nil), wanted[:]) {
		t.Errorf("%s has %d bytes, not the %d that were stored", name, n, len(want))
	}
}

func parse(t testing.TB, text string) Config {
	t.Helper()
	config, err := ParseConfig(text)
	must.Succeed(t, err)
	return config
}

// made opens a store; the error is that of its config or of opening it.
func made(t testing.TB, kind, config string, session Session) (Storage, error) {
	t.Helper()
	open, err := All().Storage[kind].New(parse(t, config))
	if err != nil {
		return nil, err
	}
	return open(session)
}

func opened(t testing.TB, kind, config string, session Session) Storage {
	t.Helper()
	s, err := made(t, kind, config, session)
	must.Succeed(t, err)
	t.Cleanup(s.Close)
	return s
}

func logIn(t testing.TB, kind, config string) (Session, error) {
	t.Helper()
	login, err := All().Auth[kind].New(parse(t, config))
	if err != nil {
		return Session{}, err
	}
	return login(t.Context())
}

// hasKind fails the test unless the error is one line, of a kind and with the texts.
func hasKind(t *testing.T, err error, want string, texts ...string) {
	t.Helper()
	if err == nil || KindOf(err) != want || strings.ContainsAny(err.Error(), "\r\n") {
		t.Errorf("error %v, not of kind %s", err, want)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q is not in %q", text, err)
		}
	}
}

// fakeS3 answers as S3 does if the request's signature is right. Its objects are in a fake Swift.
type fakeS3 struct {
	*httptest.Server
	// AccessKey and SecretKey sign requests.
	AccessKey, SecretKey string
	// Domain is the suffix of bucket host names; empty: buckets are in the path.
	Domain string

	store memswift.Server
}

// newFakeS3 starts a fakeS3.
func newFakeS3(t testing.TB) *fakeS3 {
	s := &fakeS3{AccessKey: "test:tester", SecretKey: "test-key"}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *fakeS3) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if payload := r.Header.Get("X-Amz-Content-Sha256"); payload != "UNSIGNED-PAYLOAD" {
		if sum := sha256.Sum256(body); payload != hex.EncodeToString(sum[:]) {
			s3Error(w, http.StatusBadRequest, "XAmzContentSHA256Mismatch")
			return
		}
	}
	if r.Method == http.MethodPut && r.ContentLength < 0 {
		s3Error(w, http.StatusLengthRequired, "MissingContentLength")
		return
	}
	if want, got := signature(r, s.SecretKey), between(r.Header.Get("Authorization"), "Signature=", ""); want != got ||
		between(r.Header.Get("Authorization"), "Credential=", "/") != s.AccessKey {
		// AWS includes the signed text and the access key here.
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
	asked, answer := r.Clone(r.Context()), httptest.NewRecorder()
	asked.URL.Path, asked.Body = memswift.AccountPath+"/"+path, io.NopCloser(bytes.NewReader(body))
	asked.Header.Set("X-Auth-Token", s.store.Token())
	s.store.ServeHTTP(answer, asked)
	isObject := strings.Contains(path, "/")
	switch {
	case answer.Code == http.StatusAccepted:
		s3Error(w, http.StatusConflict, "BucketAlreadyOwnedByYou")
	case answer.Code == http.StatusConflict:
		s3Error(w, http.StatusConflict, "BucketNotEmpty")
	case answer.Code == http.StatusNotFound && r.Method == http.MethodDelete && isObject:
		w.WriteHeader(http.StatusNoContent)
	case answer.Code == http.StatusNotFound:
		s3Error(w, http.StatusNotFound, "NoSuchKey")
	case r.Method != http.MethodGet:
		w.WriteHeader(answer.Code)
	case !isObject && r.URL.Query().Get("list-type") != "2":
		s3Error(w, http.StatusNotImplemented, "NotImplemented")
	default:
		w.Header().Set("Content-Length", fmt.Sprint(answer.Body.Len()))
		_, _ = answer.Body.WriteTo(w)
	}
}

func s3Error(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?>`+"\n<Error><Code>%s</Code><Message>Because\nof that."+
		"</Message><Resource>/x</Resource></Error>", code)
}

func between(text, begin, end string) string {
	_, text, _ = strings.Cut(text, begin)
	if end != "" {
		text, _, _ = strings.Cut(text, end)
	}
	return text
}

// signature computes a request's signature from what a server gets, by AWS's description of version
// 4, for any signed headers.
func signature(r *http.Request, secretKey string) string {
	authorization := r.Header.Get("Authorization")
	scope := between(authorization, "Credential=", ",")
	scope = scope[strings.Index(scope, "/")+1:] // the access key has no slash
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

// encode is AWS's UriEncode, based on net/url's.
func encode(text string) string {
	return strings.NewReplacer("+", "%20", "*", "%2A", "%7E", "~").Replace(url.QueryEscape(text))
}

// fakeSwift is an in-memory store that answers as Swift's proxy with TempAuth does.
type fakeSwift struct {
	*httptest.Server
	Store *memswift.Server

	before atomic.Pointer[Answer]
}

// Answer answers a request, or returns false.
type Answer func(w http.ResponseWriter, r *http.Request) bool

// Before sets an Answer that gets each request to the account first; nil removes it.
func (s *fakeSwift) Before(answer Answer) { s.before.Store(&answer) }

// newFakeSwift starts a fakeSwift.
func newFakeSwift(t testing.TB) *fakeSwift {
	s := &fakeSwift{Store: &memswift.Server{User: "test:tester", Key: "test-key"}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Trans-Id", "tx1")
		before := s.before.Load()
		if r.URL.Path != memswift.AuthPath && before != nil && *before != nil && (*before)(w, r) {
			return
		}
		s.Store.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// AuthURL returns the login URL.
func (s *fakeSwift) AuthURL() string { return s.URL + memswift.AuthPath }

// StorageURL returns the account's URL.
func (s *fakeSwift) StorageURL() string { return s.URL + memswift.AccountPath }

// HOTBED_SWIFT is "TYPE CONFIG [AUTHTYPE AUTHCONFIG]", several separated by "|", such as "swift
// timeout=10000 swauth username=...;password=...;auth_url=...". It is an environment variable
// because it has passwords.
func TestRealStoresKeepTheContract(t *testing.T) {
	text := os.Getenv("HOTBED_SWIFT")
	if text == "" {
		t.Skip("needs a Swift: HOTBED_SWIFT says which, and as whom")
	}
	for i, description := range strings.Split(text, "|") {
		words := strings.Fields(description)
		if len(words) != 2 && len(words) != 4 {
			t.Fatalf("HOTBED_SWIFT has %d words for a store", len(words))
		}
		t.Run(words[0], func(t *testing.T) {
			var session Session
			if len(words) == 4 {
				var err error
				session, err = logIn(t, words[2], words[3])
				must.Succeed(t, err)
			}
			contract(t, opened(t, words[0], words[1], session), fmt.Sprintf("contract-%d", i))
		})
	}
}
