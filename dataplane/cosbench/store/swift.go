package store

import (
	"context"
	"errors"
	"io"
	"regexp"
	"slices"
	"time"

	"hotbed/dataplane/internal/http1"
)

// swiftKeys are COSBench's timeout, token, storage_url and policy, and webKeys. As in COSBench, the
// token and the URL of an auth type override those of the config.
var swiftKeys = slices.Concat([]string{"token", "storage_url", "policy"}, webKeys)

// early is how long before its end a token is renewed, unless its life is short.
const early = time.Minute

// call is one request.
type call struct {
	method, container, object, query string
	extra                            http1.Field // if its name is not empty
	body                             io.ReadSeeker
	length                           int64
}

// swift is one worker's connection to OpenStack Swift.
type swift struct {
	*web
	session Session
	policy  string
	renewAt time.Time // zero: when the token is refused
}

func newSwift(config Config) (Opener, error) {
	settings, err := readWeb("storage_url", config)
	return func(session Session) (Storage, error) {
		if session.Token == "" {
			session.Token = config.Text("token", "")
		}
		if session.StorageURL == "" {
			session.StorageURL = config.Text("storage_url", "")
		}
		if session.StorageURL == "" {
			return nil, errors.New("storage type swift has no storage_url: give one, or an auth type that finds it " +
				"(swauth, keystone)")
		}
		w, err := settings.open("storage_url", session.StorageURL, plainText)
		if err != nil {
			return nil, err
		}
		s := &swift{web: w, policy: config.Text("policy", "")}
		s.use(session)
		return s, nil
	}, err
}

// use switches to a session. The account stays the same: its URL is where the data are.
func (s *swift) use(session Session) {
	s.session = session
	s.secrets = []string{session.Token}
	s.renewAt = time.Time{}
	if now := time.Now(); session.Renew != nil && session.Expires.After(now) {
		s.renewAt = session.Expires.Add(-min(early, session.Expires.Sub(now)/10))
	}
}

func (s *swift) renew(ctx context.Context) error {
	session, err := s.session.Renew(ctx)
	if err == nil {
		s.use(session)
	}
	return err
}

// do sends a request, with a new token if the old one has expired.
func (s *swift) do(ctx context.Context, q call) (*http1.Response, string, error) {
	if !s.renewAt.IsZero() && time.Now().After(s.renewAt) {
		s.renewAt = time.Time{}
		_ = s.renew(ctx) // after a failure, the old token is still valid for a while
	}
	what := s.address(q)
	response, err := s.send(ctx, q, what)
	if err != nil || response.Status != 401 || s.session.Renew == nil {
		return response, what, err
	}
	_ = response.Close()
	if err := s.renew(ctx); err != nil {
		return nil, what, err
	}
	if q.body != nil {
		if _, err := q.body.Seek(0, io.SeekStart); err != nil {
			return nil, what, s.failure(Other, "%s: the body cannot be sent again: %v", what, err)
		}
	}
	response, err = s.send(ctx, q, what)
	return response, what, err
}

// address writes the request's target and returns its name for messages.
func (s *swift) address(q call) string {
	s.what = append(append(append(s.what[:0], q.method...), ' '), q.container...)
	s.target = append(append(s.target[:0], s.path...), '/')
	s.target = appendEscaped(s.target, q.container, false)
	if q.object != "" {
		s.what = append(append(s.what, '/'), q.object...)
		s.target = appendEscaped(append(s.target, '/'), q.object, true)
	}
	s.target = append(s.target, q.query...)
	return string(s.what)
}

func (s *swift) send(ctx context.Context, q call, what string) (*http1.Response, error) {
	s.fields = s.fields[:0]
	if s.session.Token != "" {
		s.fields = append(s.fields, http1.Field{Name: "X-Auth-Token", Value: s.session.Token})
	}
	if q.extra.Name != "" {
		s.fields = append(s.fields, q.extra)
	}
	r := &s.request
	r.Method, r.Target, r.Fields = q.method, string(s.target), s.fields
	return s.web.do(ctx, what, q)
}

// plain sends a request with an answer that has nothing to read. With missing, 404 is a success.
func (s *swift) plain(ctx context.Context, q call, missing bool) error {
	response, what, err := s.do(ctx, q)
	if err != nil {
		return err
	}
	if response.Status/100 == 2 || missing && response.Status == 404 {
		return response.Close()
	}
	return s.refused(response, what)
}

var tags = regexp.MustCompile("<[^>]*>")

// plainText extracts the text of a Swift error: some of its answers are a small HTML page.
func plainText(body []byte) string { return tags.ReplaceAllString(string(body), " ") }

// CreateContainer makes a container with the policy of the config. Swift answers 202 if it exists.
func (s *swift) CreateContainer(ctx context.Context, container string) error {
	q := call{method: "PUT", container: container}
	if s.policy != "" {
		q.extra = http1.Field{Name: "X-Storage-Policy", Value: s.policy}
	}
	return s.plain(ctx, q, false)
}

func (s *swift) DeleteContainer(ctx context.Context, container string) error {
	return s.plain(ctx, call{method: "DELETE", container: container}, true)
}

func (s *swift) Put(ctx context.Context, container, object string, body io.ReadSeeker, length int64) error {
	return s.plain(ctx, call{method: "PUT", container: container, object: object, body: body, length: length,
		extra: http1.Field{Name: "Content-Type", Value: "application/octet-stream"}}, false)
}

func (s *swift) Delete(ctx context.Context, container, object string) error {
	return s.plain(ctx, call{method: "DELETE", container: container, object: object}, true)
}

func (s *swift) Get(ctx context.Context, container, object string) (io.ReadCloser, error) {
	response, what, err := s.do(ctx, call{method: "GET", container: container, object: object})
	if err != nil {
		return nil, err
	}
	if response.Status != 200 {
		return nil, s.refused(response, what)
	}
	return s.answer(response, what), nil
}

// List reads the names of one Swift answer (10,000), one per line.
func (s *swift) List(ctx context.Context, container, prefix string) (int64, error) {
	q := call{method: "GET", container: container}
	if prefix != "" {
		q.query = string(appendEscaped([]byte("?prefix="), prefix, false))
	}
	response, what, err := s.do(ctx, q)
	if err != nil {
		return 0, err
	}
	if response.Status != 200 && response.Status != 204 {
		return 0, s.refused(response, what)
	}
	return io.Copy(io.Discard, s.answer(response, what))
}
