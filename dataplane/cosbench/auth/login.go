package auth

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"hotbed/dataplane/cosbench/access"
)

// service is an auth service that is spoken to by HTTP. A login is rare: net/http is quick enough.
type service struct {
	name     string // of the auth type, for messages
	url      string
	username string
	password string
	client   *http.Client
}

// serviceKeys are what every such auth type's config may have: auth_url (or url), username, password,
// timeout (milliseconds, of a whole login), and tls_verify=false (ours) for certificates that
// nobody vouches for: COSBench takes any.
var serviceKeys = []string{"auth_url", "url", "username", "password", "timeout", "tls_verify"}

// answerMax is how much of an answer is read, in bytes: a catalogue of a large cloud has some 100 KB.
const answerMax = 4 << 20

func newService(config access.Config, name, defaultURL string, timeout time.Duration) (*service, error) {
	if err := common(config); err != nil {
		return nil, err
	}
	s := &service{name: name, username: config.String("username", ""), password: config.String("password", "")}
	back := config.String("url", defaultURL)
	s.url = strings.TrimRight(config.String("auth_url", back), "/")
	u, err := url.Parse(s.url)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("auth_url of auth type %s is not the URL of a service; write http://HOST:PORT/PATH", name)
	}
	if u.User != nil {
		return nil, fmt.Errorf("auth_url of auth type %s has a user in it; write username= and password=", name)
	}
	timeout, err = config.Milliseconds("timeout", timeout)
	if err != nil {
		return nil, err
	}
	verify, err := config.Bool("tls_verify", true)
	if err != nil {
		return nil, err
	}
	s.client = &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: !verify},
			DisableKeepAlives: true, // the next login is hours away
		},
		// A password is not carried on to where a redirection leads.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s, nil
}

// answer is what a service said.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// ask sends a request and reads the answer; what is not a 2xx is an error.
func (s *service) ask(ctx context.Context, method, path string, header http.Header, body []byte) (answer, error) {
	at := s.url + path
	request, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return answer{}, s.fail(access.Client, 0, "%s cannot be asked", at)
	}
	for name, values := range header {
		request.Header[name] = values
	}
	response, err := s.client.Do(request)
	if err != nil {
		return answer{}, s.lost(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	got := answer{status: response.StatusCode, header: response.Header}
	if got.body, err = io.ReadAll(io.LimitReader(response.Body, answerMax)); err != nil {
		return answer{}, s.lost(ctx, err)
	}
	switch {
	case got.status >= 200 && got.status < 300:
		return got, nil
	case got.status == http.StatusUnauthorized || got.status == http.StatusForbidden:
		return got, s.fail(access.Auth, got.status, "%s does not let %s in: see to username and password", at, s.who())
	case got.status == http.StatusNotFound:
		return got, s.fail(access.Client, got.status, "%s is not an auth service of this type; see to auth_url", at)
	case got.status < 300 || got.status >= 500:
		return got, s.fail(access.Server, got.status, "%s failed", at)
	case got.status < 400:
		return got, s.fail(access.Client, got.status, "%s sends elsewhere; see to auth_url", at)
	}
	return got, s.fail(access.Client, got.status, "%s refuses the request", at)
}

func (s *service) who() string {
	if s.username == "" {
		return "nobody (no username is given)"
	}
	return s.username
}

// lost is the error of a request without an answer.
func (s *service) lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return access.Ended(ctx.Err())
	}
	var u *url.Error
	if errors.As(err, &u) { // its text repeats method and URL
		err = u.Err
	}
	kind := access.KindOf(err)
	if kind == access.Timeout {
		return s.fail(kind, 0, "%s did not answer within %v", s.url, s.client.Timeout)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		kind = access.Refused
	}
	return s.fail(kind, 0, "%s cannot be reached: %v", s.url, err)
}

func (s *service) fail(kind string, status int, format string, args ...any) error {
	message := fmt.Sprintf("auth type "+s.name+": "+format, args...)
	if s.password != "" {
		message = strings.ReplaceAll(message, s.password, "***")
	}
	return &access.Error{Kind: kind, Status: status, Message: message}
}
