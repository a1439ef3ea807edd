package auth

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"hotbed/dataplane/cosbench/access"
)

var httpauthKeys = serviceKeys

func newHTTPAuth(config access.Config) (*service, error) {
	return newService(config, "httpauth", "http://127.0.0.1:80", 30*time.Second)
}

// openHTTPAuth asks for auth_url with the user's name and password (basic), as COSBench does, and has
// each request of the storage carry them. The account is auth_url itself.
func openHTTPAuth(ctx context.Context, config access.Config) (Session, error) {
	s, err := newHTTPAuth(config)
	if err != nil {
		return Session{}, err
	}
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte(s.username+":"+s.password))
	got, err := s.ask(ctx, http.MethodGet, "", http.Header{"Authorization": {basic}}, nil)
	if got.status == http.StatusUnauthorized {
		scheme, _, _ := strings.Cut(got.header.Get("Www-Authenticate"), " ")
		if scheme != "" && !strings.EqualFold(scheme, "basic") {
			err = s.fail(access.Auth, got.status, "%s wants the scheme %s; only basic is supported", s.url, scheme)
		}
	}
	// As in COSBench, only an answer that the user is not let in counts: the page may be missing.
	if err != nil && (got.status == 0 || access.KindOf(err) == access.Auth) {
		return Session{}, err
	}
	return Session{StorageURL: s.url, Authorization: basic}, nil
}
