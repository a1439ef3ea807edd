package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"hotbed/dataplane/tests/memswift"
	"hotbed/dataplane/tests/must"
)

const secret = "very-secret"

func login(t *testing.T, kind, config string) (Session, error) {
	t.Helper()
	session, err := logIn(t, kind, config)
	if err != nil && strings.Contains(err.Error(), secret) {
		t.Errorf("%v shows the password", err)
	}
	return session, err
}

func serve(t *testing.T, handler http.HandlerFunc) string {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

func TestNoneAndMock(t *testing.T) {
	if session, err := login(t, "none", "logging=false;caching=true"); err != nil || session.Token != "" {
		t.Error(session, err)
	}
	if session, err := login(t, "mock", "token=abc;delay=0"); err != nil || session.Token != "abc" {
		t.Error(session, err)
	}
	for _, config := range []string{"delay=-1", "delay=x"} {
		if _, err := login(t, "mock", config); err == nil {
			t.Errorf("%s was taken", config)
		}
	}
}

func TestSwauth(t *testing.T) {
	server := newFakeSwift(t)
	server.Store.Key = secret
	for _, key := range []string{"auth_url", "url"} {
		session, err := login(t, "swauth", key+"="+server.AuthURL()+";username=test:tester;password="+secret)
		left := time.Until(session.Expires)
		if err != nil || session.Token != server.Store.Token() || session.StorageURL != server.StorageURL() ||
			session.Renew == nil || left < 23*time.Hour || left > 24*time.Hour {
			t.Error(session, err)
		}
	}
	_, err := login(t, "swauth", "auth_url="+server.AuthURL()+";username=other;password="+secret)
	hasKind(t, err, Auth, `does not let user "other" in`)
	_, err = login(t, "swauth", "auth_url="+serve(t, http.NotFound))
	hasKind(t, err, Other, "see to auth_url")
}

func TestServicesThatAnswerOtherwise(t *testing.T) {
	stall := make(chan bool)
	for name, test := range map[string]struct {
		handler    http.HandlerFunc
		kind, text string
	}{
		"nothing said": {func(http.ResponseWriter, *http.Request) {}, Server, "without X-Auth-Token"},
		"overloaded":   {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, secret, http.StatusServiceUnavailable) }, Server, "refuses"},
		"bad request":  {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, secret, 400) }, Other, "refuses"},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				t.Error("the password was carried elsewhere")
			}
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}, Other, "see to auth_url"},
		"stalled": {func(http.ResponseWriter, *http.Request) { <-stall }, Timeout, "did not answer within 50ms"},
		"broken": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		}, Refused, "cannot be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			config := "username=u;password=" + secret + ";auth_url=" + serve(t, test.handler)
			if test.kind == Timeout {
				config += ";timeout=50"
				t.Cleanup(func() { close(stall) })
			}
			_, err := login(t, "swauth", config)
			hasKind(t, err, test.kind, test.text)
		})
	}
	_, err := login(t, "swauth", "auth_url=http://127.0.0.1:1/auth")
	hasKind(t, err, Refused, "cannot be reached")
	for config, text := range map[string]string{"auth_url=x": "is not the URL", "auth_url=ftp://x": "is not the URL",
		"auth_url=http://a:" + secret + "@x": "has a user in it", "timeout=x": "timeout=x", "tls_verify=1": "tls_verify=1"} {
		_, err := login(t, "swauth", config)
		hasKind(t, err, Other, text)
	}
}

func TestCertificatesAreLookedAt(t *testing.T) {
	server := httptest.NewUnstartedServer(&memswift.Server{User: "test:tester", Key: secret})
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	config := "username=test:tester;password=" + secret + ";auth_url=" + server.URL + memswift.AuthPath
	_, err := login(t, "swauth", config)
	must.Refuse(t, err, "certificate")
	if _, err := login(t, "swauth", config+";tls_verify=false"); err != nil {
		t.Error(err)
	}
}

// keystoneFake answers versions 2.0 and 3 for one user.
func keystoneFake(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Auth json.RawMessage }
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || r.Method != http.MethodPost ||
			r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s %v", r.Method, r.URL, err)
		}
		until := time.Now().Add(time.Hour).UTC()
		switch said := string(asked.Auth); {
		case r.URL.Path == "/v2.0/tokens" && (said == `{"passwordCredentials":{"password":"`+secret+`","username":"u"},"tenantName":"t"}` ||
			said == `{"tenantId":"id","token":{"id":"old"}}`):
			_, _ = fmt.Fprintf(w, `{"access":{"token":{"id":"tk2","expires":%q},"serviceCatalog":[
				{"name":"nova","type":"compute","endpoints":[{"region":"R1","publicURL":"http://nova"}]},
				{"name":"swift","type":"object-store","endpoints":[{"region":"R1","publicURL":"http://one/v1/AUTH_t","internalURL":"http://in"},
				{"region":"R2","publicURL":"http://two/v1/AUTH_t"}]}]}}`, until.Format("2006-01-02T15:04:05Z"))
		case r.URL.Path == "/v3/auth/tokens" && (said == `{"identity":{"methods":["password"],"password":{"user":{"domain":{"id":"default"},"name":"u","password":"`+secret+`"}}},"scope":{"project":{"domain":{"id":"default"},"name":"t"}}}` ||
			said == `{"identity":{"methods":["token"],"token":{"id":"old"}},"scope":{"project":{"id":"id"}}}` ||
			said == `{"identity":{"methods":["password"],"password":{"user":{"domain":{"name":"D"},"name":"u","password":"`+secret+`"}}},"scope":{"project":{"domain":{"name":"E"},"name":"t"}}}`):
			w.Header().Set("X-Subject-Token", "tk3")
			w.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprintf(w, `{"token":{"expires_at":%q,"catalog":[{"name":"swift","type":"object-store","endpoints":[
				{"interface":"internal","region":"R1","url":"http://in"},{"interface":"public","region":"R1","url":"http://one/v1/AUTH_t/"},
				{"interface":"public","region":"R2","url":"http://two/v1/AUTH_t"}]}]}}`, until.Format("2006-01-02T15:04:05.000000Z"))
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	}
}

func TestKeystone(t *testing.T) {
	at := serve(t, keystoneFake(t))
	for _, version := range []string{"2.0", "3"} {
		who := "auth_url=" + at + "/v" + version + ";username=u;password=" + secret
		for config, want := range map[string]string{
			who + ";tenant_name=t":                                             "http://one/v1/AUTH_t",
			who + ";tenname=t;region=R2":                                       "http://two/v1/AUTH_t",
			who + ";tenant_name=t;service=object-store":                        "http://one/v1/AUTH_t",
			"auth_url=" + at + "/v" + version + "/;tenant_id=id;usertoken=old": "http://one/v1/AUTH_t",
		} {
			session, err := login(t, "keystone", config)
			if err != nil || session.StorageURL != want || session.Token != "tk"+version[:1] || session.Renew == nil ||
				session.Expires.IsZero() {
				t.Errorf("%s: %v %v", config, session, err)
			}
		}
		_, err := login(t, "keystone", who+";tenant_name=other")
		hasKind(t, err, Auth, `does not let user "u" in`)
		_, err = login(t, "keystone", who+";tenant_name=t;service=s3;region=R9")
		hasKind(t, err, Other, "no public endpoint of service s3 R9; it has: ")
	}
	if _, err := login(t, "keystone", "auth_url="+at+"/v3;username=u;password="+secret+
		";tenant_name=t;user_domain=D;project_domain=E"); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"/v2.0", "/v3"} {
		at := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) })
		_, err := login(t, "keystone", "auth_url="+at+path)
		hasKind(t, err, Server, "without a token")
	}
}

// TestOneRenewalServesAll has many workers find an expired token at once.
func TestOneRenewalServesAll(t *testing.T) {
	var mu sync.Mutex
	logins, fail := 0, false
	begin := make(chan bool)
	session, err := renewing(func(context.Context) (Session, error) {
		mu.Lock()
		defer mu.Unlock()
		if logins++; logins > 1 {
			<-begin
		}
		if fail {
			return Session{}, &Error{Kind: Server, Message: "down"}
		}
		return Session{Token: fmt.Sprint(logins)}, nil
	})(t.Context())
	if err != nil || session.Token != "1" {
		t.Fatal(session, err)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if renewed, err := session.Renew(t.Context()); err != nil || renewed.Token != "2" {
				t.Error(renewed, err)
			}
		})
	}
	called, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := session.Renew(called); !errors.Is(err, context.Canceled) {
		t.Error(err) // a cancelled worker does not wait, and the others get their sessions
	}
	close(begin)
	all.Wait()
	renewed, err := session.Renew(t.Context())
	if err != nil || renewed.Token != "2" || logins != 2 {
		t.Error(renewed, err, logins)
	}
	if again, err := renewed.Renew(t.Context()); err != nil || again.Token != "3" {
		t.Error(again, err)
	}
}

func TestAFailedRenewalIsEverybodysForAWhile(t *testing.T) {
	logins := 0
	a := newAccount(func(context.Context) (Session, error) {
		logins++
		return Session{}, &Error{Kind: Server, Message: "down"}
	}, time.Hour)
	for range 5 {
		_, err := a.renew(t.Context(), 0)
		hasKind(t, err, Server, "down")
	}
	if logins != 1 {
		t.Errorf("%d logins", logins)
	}
	a.hold = 0
	_, err := a.renew(t.Context(), 0)
	if hasKind(t, err, Server, "down"); logins != 2 {
		t.Errorf("%d logins", logins)
	}
}
