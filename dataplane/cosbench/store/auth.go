package store

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Session is the result of a login. The zero Session belongs to auth type none.
type Session struct {
	StorageURL string // URL of the account, without a slash at the end; empty: the store knows it
	Token      string // empty: requests have no token
	// Expires is the token's end, so that it can be renewed before; zero: unknown.
	Expires time.Time
	// Renew gets a new session after the token's end; nil: nothing to renew. Many workers may call
	// it in parallel.
	Renew Login
}

// commonKeys are known to all auth types and have no effect: COSBench's logging of each
// authentication, and caching of its result (always on).
var commonKeys = []string{"logging", "caching"}

func newNoAuth(Config) (Login, error) {
	return func(context.Context) (Session, error) { return Session{}, nil }, nil
}

// newMockAuth waits COSBench's 10 ms per login and returns a token that nothing checks.
func newMockAuth(config Config) (Login, error) {
	delay, err := config.Milliseconds("delay", 10*time.Millisecond)
	return func(ctx context.Context) (Session, error) {
		return Session{Token: config.Text("token", "token")}, pause(ctx, delay)
	}, err
}

// service is an auth service over HTTP. A login is rare: net/http is quick enough.
type service struct {
	name     string // of the auth type, for messages
	url      string
	username string
	password string
	client   *http.Client
}

// serviceKeys are the keys of every such auth type: auth_url (or url), username, password, timeout
// (milliseconds of a whole login), and tls_verify. tls_verify=false, which COSBench lacks, accepts
// unverified certificates: COSBench accepts any.
var serviceKeys = slices.Concat([]string{"auth_url", "url", "username", "password", "timeout", "tls_verify"},
	commonKeys)

// answerMax bounds the answer read, in bytes: a large cloud's catalogue has about 100 KB.
const answerMax = 4 << 20

func newService(config Config, name, defaultURL string, timeout time.Duration) (*service, error) {
	s := &service{name: name, username: config.Text("username", ""), password: config.Text("password", "")}
	s.url = strings.TrimRight(config.Text("auth_url", config.Text("url", defaultURL)), "/")
	u, err := url.Parse(s.url)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("auth_url of auth type %s is not the URL of a service; write http://HOST:PORT/PATH", name)
	}
	if u.User != nil {
		return nil, fmt.Errorf("auth_url of auth type %s has a user in it; write username= and password=", name)
	}
	if timeout, err = config.Milliseconds("timeout", timeout); err != nil {
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
		// A redirection must not carry the password elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s, nil
}

// answer is a service's answer.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// ask sends a request and reads the answer; any status except 2xx is an error.
func (s *service) ask(ctx context.Context, method, path string, header http.Header, body []byte) (answer, error) {
	at := s.url + path
	request, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return answer{}, s.fail(Other, 0, "%s cannot be asked", at)
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
	switch kind := kindOfStatus(got.status); {
	case got.status/100 == 2:
		return got, nil
	case kind == Auth:
		return got, s.fail(Auth, got.status, "%s does not let user %q in; see to username and password", at, s.username)
	case got.status < 400 || kind == NotFound:
		return got, s.fail(Other, got.status, "%s is not an auth service of this type; see to auth_url", at)
	default:
		return got, s.fail(kind, got.status, "%s refuses the request", at)
	}
}

// lost returns the error of a request without an answer.
func (s *service) lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ended(ctx.Err())
	}
	var u *url.Error
	if errors.As(err, &u) { // its text contains method and URL
		err = u.Err
	}
	kind := KindOf(err)
	if kind == Timeout {
		return s.fail(kind, 0, "%s did not answer within %v", s.url, s.client.Timeout)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		kind = Refused
	}
	return s.fail(kind, 0, "%s cannot be reached: %v", s.url, err)
}

func (s *service) fail(kind string, status int, format string, args ...any) error {
	message := fmt.Sprintf("auth type "+s.name+": "+format, args...)
	if s.password != "" {
		message = strings.ReplaceAll(message, s.password, "***")
	}
	return &Error{Kind: kind, Status: status, Message: message}
}

// newSwauth logs in at Swift's TempAuth or swauth (auth v1.0): a GET with X-Auth-User and X-Auth-Key,
// answered by X-Auth-Token and X-Storage-Url.
func newSwauth(config Config) (Login, error) {
	s, err := newService(config, "swauth", "http://127.0.0.1:8080/auth/v1.0", 30*time.Second)
	return renewing(s.loginV1), err
}

func (s *service) loginV1(ctx context.Context) (Session, error) {
	asked := time.Now()
	got, err := s.ask(ctx, http.MethodGet, "", http.Header{"X-Auth-User": {s.username}, "X-Auth-Key": {s.password}}, nil)
	if err != nil {
		return Session{}, err
	}
	token := got.header.Get("X-Auth-Token")
	if token == "" {
		token = got.header.Get("X-Storage-Token")
	}
	account := got.header.Get("X-Storage-Url")
	if token == "" || account == "" {
		return Session{}, s.fail(Server, got.status,
			"%s answers without X-Auth-Token and X-Storage-Url; see to auth_url", s.url)
	}
	session := Session{StorageURL: strings.TrimRight(account, "/"), Token: token}
	// TempAuth gives the token's lifetime in seconds.
	if seconds, err := strconv.ParseFloat(got.header.Get("X-Auth-Token-Expires"), 64); err == nil && seconds > 0 {
		session.Expires = asked.Add(time.Duration(min(seconds, 1e9) * float64(time.Second)))
	}
	return session, nil
}

// keystoneKeys: tenant_id, tenant_name (or tenname), service and usertoken are COSBench's; region,
// user_domain and project_domain are for version 3.
var keystoneKeys = slices.Concat(serviceKeys, []string{"tenant_id", "tenant_name", "tenname", "service", "usertoken",
	"region", "user_domain", "project_domain"})

// keystone is an OpenStack identity service. The end of auth_url gives the version: /v3, else v2.0.
type keystone struct {
	*service
	userToken, tenantID, tenantName string
	userDomain, projectDomain       string
	catalogue, region               string
}

func newKeystone(config Config) (Login, error) {
	s, err := newService(config, "keystone", "http://127.0.0.1:5000/v2.0", 10*time.Second)
	if err != nil {
		return nil, err
	}
	k := &keystone{service: s,
		userToken:  config.Text("usertoken", ""),
		tenantID:   config.Text("tenant_id", ""),
		tenantName: config.Text("tenant_name", config.Text("tenname", "")),
		userDomain: config.Text("user_domain", "Default"),
		catalogue:  config.Text("service", "swift"),
		region:     config.Text("region", ""),
	}
	k.projectDomain = config.Text("project_domain", k.userDomain)
	return renewing(k.login), nil
}

// object is JSON as a map, which is fast enough for rare logins.
type object = map[string]any

// answers of both versions; each has its own half.
type keystoneAnswer struct {
	Access struct {
		Token   struct{ ID, Expires string }
		Catalog []catalogService `json:"serviceCatalog"`
	}
	Token struct {
		Expires string `json:"expires_at"`
		Catalog []catalogService
	}
}

type catalogService struct {
	Name, Type string
	Endpoints  []struct{ Region, PublicURL, Interface, URL string }
}

func (k *keystone) login(ctx context.Context) (Session, error) {
	three := strings.HasSuffix(k.url, "/v3")
	path, who := "/tokens", k.identity2()
	if three {
		path, who = "/auth/tokens", k.identity3()
	}
	text, err := json.Marshal(object{"auth": who})
	if err != nil {
		return Session{}, k.fail(Other, 0, "the request cannot be written")
	}
	got, err := k.ask(ctx, http.MethodPost, path, http.Header{"Content-Type": {"application/json"}}, text)
	if err != nil {
		return Session{}, err
	}
	var said keystoneAnswer
	err = json.Unmarshal(got.body, &said)
	session := Session{Token: said.Access.Token.ID}
	expires, catalog := said.Access.Token.Expires, said.Access.Catalog
	if three {
		session.Token = got.header.Get("X-Subject-Token")
		expires, catalog = said.Token.Expires, said.Token.Catalog
	}
	if err != nil || session.Token == "" {
		return Session{}, k.fail(Server, got.status, "%s answers without a token", k.url)
	}
	// A past time shows that the clocks differ.
	if until, err := time.Parse(time.RFC3339, expires); err == nil && time.Now().Before(until) {
		session.Expires = until
	}
	session.StorageURL, err = k.find(catalog)
	return session, err
}

func (k *keystone) identity2() object {
	who := object{"passwordCredentials": object{"username": k.username, "password": k.password}}
	if k.userToken != "" {
		who = object{"token": object{"id": k.userToken}}
	}
	if k.tenantID != "" {
		who["tenantId"] = k.tenantID
	} else if k.tenantName != "" {
		who["tenantName"] = k.tenantName
	}
	return who
}

func (k *keystone) identity3() object {
	user := object{"name": k.username, "password": k.password, "domain": domain(k.userDomain)}
	identity := object{"methods": []string{"password"}, "password": object{"user": user}}
	if k.userToken != "" {
		identity = object{"methods": []string{"token"}, "token": object{"id": k.userToken}}
	}
	who := object{"identity": identity}
	if k.tenantID != "" {
		who["scope"] = object{"project": object{"id": k.tenantID}}
	} else if k.tenantName != "" {
		who["scope"] = object{"project": object{"name": k.tenantName, "domain": domain(k.projectDomain)}}
	}
	return who
}

// domain names a domain by id if it is the default domain of every keystone, else by name.
func domain(name string) object {
	if strings.EqualFold(name, "default") {
		return object{"id": "default"}
	}
	return object{"name": name}
}

// find returns the store's public URL: of the service of this name as in COSBench, else of this type.
func (k *keystone) find(catalog []catalogService) (string, error) {
	var byType string
	var names []string
	for _, service := range catalog {
		for _, e := range service.Endpoints {
			at := strings.TrimRight(e.PublicURL, "/")
			if e.Interface == "public" {
				at = strings.TrimRight(e.URL, "/")
			}
			if at == "" {
				continue
			}
			names = append(names, strings.TrimSpace(service.Name+" "+e.Region))
			switch here := k.region == "" || e.Region == k.region; {
			case here && service.Name == k.catalogue:
				return at, nil
			case here && service.Type == k.catalogue && byType == "":
				byType = at
			}
		}
	}
	if byType != "" {
		return byType, nil
	}
	return "", k.fail(Other, 0, "the catalogue has no public endpoint of service %s; it has: %s; see to service, "+
		"region and tenant_name", strings.TrimSpace(k.catalogue+" "+k.region), strings.Join(slices.Compact(names), ", "))
}

// account serves many workers with one login. If several find at once that the token has expired,
// one logs in again, and all get the result.
type account struct {
	login Login
	// hold is how long a failed renewal answers all workers: if a store refuses every request, not
	// every request may ask the auth service.
	hold time.Duration

	busy   chan struct{} // holds one element while a worker uses the fields below
	turn   int           // number of sessions so far
	now    Session
	err    error // of the latest login
	failed time.Time
}

func newAccount(login Login, hold time.Duration) *account {
	return &account{login: login, hold: hold, busy: make(chan struct{}, 1)}
}

// renewing returns a login with sessions that renew themselves.
func renewing(login Login) Login {
	return func(ctx context.Context) (Session, error) { return newAccount(login, time.Second).renew(ctx, 0) }
}

// renew returns a session later than that of the given turn.
func (a *account) renew(ctx context.Context, turn int) (Session, error) {
	if ctx.Err() != nil {
		return Session{}, ended(ctx.Err())
	}
	select {
	case a.busy <- struct{}{}:
		defer func() { <-a.busy }()
	case <-ctx.Done():
		return Session{}, ended(ctx.Err())
	}
	if a.turn > turn {
		return a.now, nil
	}
	if a.err != nil && time.Since(a.failed) < a.hold {
		return Session{}, a.err
	}
	session, err := a.login(ctx)
	if err != nil {
		if ctx.Err() == nil { // else only this worker was stopped
			a.err, a.failed = err, time.Now()
		}
		return Session{}, err
	}
	a.turn++
	next := a.turn
	session.Renew = func(ctx context.Context) (Session, error) { return a.renew(ctx, next) }
	a.now, a.err = session, nil
	return session, nil
}
