package auth

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"hotbed/dataplane/cosbench/access"
)

var swauthKeys = serviceKeys

func newSwauth(config access.Config) (*service, error) {
	return newService(config, "swauth", "http://127.0.0.1:8080/auth/v1.0", 30*time.Second)
}

// openSwauth logs in as Swift's TempAuth and swauth take it (auth v1.0): a GET with X-Auth-User and
// X-Auth-Key, answered by X-Auth-Token and X-Storage-Url.
func openSwauth(ctx context.Context, config access.Config) (Session, error) {
	s, err := newSwauth(config)
	if err != nil {
		return Session{}, err
	}
	return open(ctx, s.loginV1)
}

func (s *service) loginV1(ctx context.Context) (Session, error) {
	header := http.Header{"X-Auth-User": {s.username}, "X-Auth-Key": {s.password}}
	asked := time.Now()
	got, err := s.ask(ctx, http.MethodGet, "", header, nil)
	if err != nil {
		return Session{}, err
	}
	token := got.header.Get("X-Auth-Token")
	if token == "" {
		token = got.header.Get("X-Storage-Token")
	}
	account := got.header.Get("X-Storage-Url")
	if token == "" || account == "" {
		return Session{}, s.fail(access.Server, got.status,
			"%s answers without X-Auth-Token and X-Storage-Url; see to auth_url", s.url)
	}
	session := Session{StorageURL: strings.TrimRight(account, "/"), Token: token}
	// TempAuth tells for how many seconds the token is good.
	if seconds, err := strconv.ParseFloat(got.header.Get("X-Auth-Token-Expires"), 64); err == nil && seconds > 0 {
		session.Expires = asked.Add(time.Duration(min(seconds, 1e9) * float64(time.Second)))
	}
	return session, nil
}
