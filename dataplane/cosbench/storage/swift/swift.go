// Package swift drives OpenStack Swift, as COSBench's storage type swift does.
package swift

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"hotbed/dataplane/cosbench/access"
	"hotbed/dataplane/cosbench/auth"
	"hotbed/dataplane/cosbench/storage"
	"hotbed/dataplane/cosbench/storage/internal/web"
	"hotbed/dataplane/internal/http1"
)

// Keys are COSBench's timeout, token, storage_url and policy, and web.Keys. As in COSBench, the token and
// the URL that an auth type hands out go before those of the config.
var Keys = slices.Concat([]string{"token", "storage_url", "policy"}, web.Keys)

// early is how long before its end a token is renewed, unless it is a short one.
const early = time.Minute

// store is one worker's.
type store struct {
	client  *web.Client
	session auth.Session
	policy  string
	renewAt time.Time // zero: when it is refused
	fields  []http1.Field
	path    []byte
	what    []byte
}

// Check says what of a config is wrong whatever a login finds out.
func Check(config storage.Config) error { return web.Check("storage_url", config) }

// Open makes a worker's connection; nothing is sent yet.
func Open(config storage.Config, session auth.Session) (storage.Storage, error) {
	token, at := config.String("token", ""), config.String("storage_url", "")
	if session.Token == "" {
		session.Token = token
	}
	if session.StorageURL == "" {
		session.StorageURL = at
	}
	if session.StorageURL == "" {
		return nil, fmt.Errorf("storage type swift has no storage_url: give one, or an auth type that finds it " +
			"(swauth, keystone)")
	}
	s := &store{policy: config.String("policy", "")}
	var err error
	if s.client, err = web.New("storage_url", session.StorageURL, config); err != nil {
		return nil, err
	}
	s.use(session)
	return s, nil
}

// use takes a session. The account does not change with it: its URL is where the data are.
func (s *store) use(session auth.Session) {
	s.session = session
	s.client.Hide(session.Token, session.Authorization)
	s.renewAt = time.Time{}
	if now := time.Now(); session.Renew != nil && session.Expires.After(now) {
		s.renewAt = session.Expires.Add(-min(early, session.Expires.Sub(now)/10))
	}
}

func (s *store) renew(ctx context.Context) error {
	session, err := s.session.Renew(ctx)
	if err == nil {
		s.use(session)
	}
	return err
}

// call is one request.
type call struct {
	method, container, object, query string
	extra                            http1.Field // where its name is not empty
	body                             io.Reader
	length                           int64
}

// do sends a request, with a new token where the old one has run out. A body can be sent for a second
// time only if it can be rewound.
func (s *store) do(ctx context.Context, q call) (*http1.Response, string, error) {
	if !s.renewAt.IsZero() && time.Now().After(s.renewAt) {
		s.renewAt = time.Time{}
		_ = s.renew(ctx) // if it failed the old one is still good for a while
	}
	what := s.address(q)
	start := int64(-1)
	seeker, _ := q.body.(io.Seeker)
	if seeker != nil && s.session.Renew != nil {
		if at, err := seeker.Seek(0, io.SeekCurrent); err == nil {
			start = at
		}
	}
	response, err := s.send(ctx, q, what)
	if err != nil || response.Status != 401 || s.session.Renew == nil {
		return response, what, err
	}
	_ = response.Close()
	if err := s.renew(ctx); err != nil {
		return nil, what, err
	}
	if q.body != nil {
		if start < 0 {
			return nil, what, &access.Error{Kind: access.Auth, Status: 401, Message: what +
				" was sent with a token that has run out, and its body cannot be sent again"}
		}
		if _, err := seeker.Seek(start, io.SeekStart); err != nil {
			return nil, what, s.client.Failure(access.Client, "%s: the body cannot be sent again: %v", what, err)
		}
	}
	response, err = s.send(ctx, q, what)
	return response, what, err
}

// address writes the request's path, and what it is called.
func (s *store) address(q call) string {
	s.what = append(append(append(s.what[:0], q.method...), ' '), q.container...)
	s.path = append(append(s.path[:0], s.client.Path...), '/')
	s.path = web.AppendEscaped(s.path, q.container, false)
	if q.object != "" {
		s.what = append(append(s.what, '/'), q.object...)
		s.path = web.AppendEscaped(append(s.path, '/'), q.object, true)
	}
	s.path = append(s.path, q.query...)
	return string(s.what)
}

func (s *store) send(ctx context.Context, q call, what string) (*http1.Response, error) {
	s.fields = s.fields[:0]
	if s.session.Token != "" {
		s.fields = append(s.fields, http1.Field{Name: "X-Auth-Token", Value: s.session.Token})
	}
	if s.session.Authorization != "" {
		s.fields = append(s.fields, http1.Field{Name: "Authorization", Value: s.session.Authorization})
	}
	if q.extra.Name != "" {
		s.fields = append(s.fields, q.extra)
	}
	r := &s.client.Request
	r.Method, r.Target, r.Fields = q.method, string(s.path), s.fields
	r.Body, r.Length = q.body, q.length
	return s.client.Do(ctx, what)
}

// plain does a request whose answer has nothing to read; missing says that 404 is a success.
func (s *store) plain(ctx context.Context, q call, missing bool) error {
	response, what, err := s.do(ctx, q)
	if err != nil {
		return err
	}
	if response.Status/100 == 2 || missing && response.Status == 404 {
		return response.Close()
	}
	return s.client.Refused(response, what, said)
}

// said is the text that Swift has for an error: some of its answers are a small HTML page.
func said(body []byte) string {
	var text strings.Builder
	tag := false
	for _, c := range string(body) {
		switch {
		case c == '<':
			tag = true
			text.WriteByte(' ')
		case c == '>' && tag:
			tag = false
		case !tag:
			text.WriteRune(c)
		}
	}
	return text.String()
}

// CreateContainer makes a container, with the policy of the config. Swift answers 202 where there is one.
func (s *store) CreateContainer(ctx context.Context, container string) error {
	q := call{method: "PUT", container: container}
	if s.policy != "" {
		q.extra = http1.Field{Name: "X-Storage-Policy", Value: s.policy}
	}
	return s.plain(ctx, q, false)
}

func (s *store) DeleteContainer(ctx context.Context, container string) error {
	return s.plain(ctx, call{method: "DELETE", container: container}, true)
}

func (s *store) Put(ctx context.Context, container, object string, body io.Reader, length int64) error {
	return s.plain(ctx, call{method: "PUT", container: container, object: object, body: body, length: length,
		extra: http1.Field{Name: "Content-Type", Value: "application/octet-stream"}}, false)
}

func (s *store) Delete(ctx context.Context, container, object string) error {
	return s.plain(ctx, call{method: "DELETE", container: container, object: object}, true)
}

func (s *store) Get(ctx context.Context, container, object string) (io.ReadCloser, int64, error) {
	response, what, err := s.do(ctx, call{method: "GET", container: container, object: object})
	if err != nil {
		return nil, 0, err
	}
	if response.Status != 200 {
		return nil, 0, s.client.Refused(response, what, said)
	}
	return s.client.Body(response, what), response.Length, nil
}

// List reads the names that Swift answers at once (10,000), a line each.
func (s *store) List(ctx context.Context, container, prefix string) (int64, error) {
	q := call{method: "GET", container: container}
	if prefix != "" {
		q.query = string(web.AppendEscaped([]byte("?prefix="), prefix, false))
	}
	response, what, err := s.do(ctx, q)
	if err != nil {
		return 0, err
	}
	if response.Status != 200 && response.Status != 204 {
		return 0, s.client.Refused(response, what, said)
	}
	return io.Copy(io.Discard, s.client.Body(response, what))
}

func (s *store) Close() error { return s.client.Close() }
