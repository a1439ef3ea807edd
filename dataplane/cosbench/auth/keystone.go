package auth

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"hotbed/dataplane/cosbench/access"
)

// keystoneKeys: tenant_id, tenant_name (or tenname), service and usertoken are COSBench's; region,
// user_domain and project_domain are ours, for version 3.
var keystoneKeys = slices.Concat(serviceKeys, []string{"tenant_id", "tenant_name", "tenname", "service", "usertoken",
	"region", "user_domain", "project_domain"})

// keystone is an OpenStack identity service. The version is what auth_url ends with: /v3, else v2.0.
type keystone struct {
	*service
	userToken, tenantID, tenantName string
	userDomain, projectDomain       string
	catalogue, region               string
}

func newKeystone(config access.Config) (*service, error) {
	return newService(config, "keystone", "http://127.0.0.1:5000/v2.0", 10*time.Second)
}

func openKeystone(ctx context.Context, config access.Config) (Session, error) {
	s, err := newKeystone(config)
	if err != nil {
		return Session{}, err
	}
	k := &keystone{service: s,
		userToken:  config.String("usertoken", ""),
		tenantID:   config.String("tenant_id", ""),
		tenantName: config.String("tenant_name", config.String("tenname", "")),
		userDomain: config.String("user_domain", "Default"),
		catalogue:  config.String("service", "swift"),
		region:     config.String("region", ""),
	}
	k.projectDomain = config.String("project_domain", k.userDomain)
	if strings.HasSuffix(s.url, "/v3") {
		return open(ctx, k.loginV3)
	}
	return open(ctx, k.loginV2)
}

// JSON is built of maps: each login is asked for once in hours.
type object = map[string]any

func (k *keystone) post(ctx context.Context, path string, body object) (answer, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return answer{}, k.fail(access.Client, 0, "the request cannot be written")
	}
	return k.ask(ctx, http.MethodPost, path, http.Header{"Content-Type": {"application/json"}}, text)
}

func (k *keystone) loginV2(ctx context.Context) (Session, error) {
	who := object{"passwordCredentials": object{"username": k.username, "password": k.password}}
	if k.userToken != "" {
		who = object{"token": object{"id": k.userToken}}
	}
	switch {
	case k.tenantID != "":
		who["tenantId"] = k.tenantID
	case k.tenantName != "":
		who["tenantName"] = k.tenantName
	}
	got, err := k.post(ctx, "/tokens", object{"auth": who})
	if err != nil {
		return Session{}, err
	}
	var said struct {
		Access struct {
			Token   struct{ ID, Expires string }
			Catalog []struct {
				Name, Type string
				Endpoints  []struct{ Region, PublicURL string }
			} `json:"serviceCatalog"`
		}
	}
	if err := json.Unmarshal(got.body, &said); err != nil || said.Access.Token.ID == "" {
		return Session{}, k.fail(access.Server, got.status, "%s answers without a token of version 2.0", k.url)
	}
	var found []endpoint
	for _, service := range said.Access.Catalog {
		for _, e := range service.Endpoints {
			found = append(found, endpoint{service.Name, service.Type, e.Region, e.PublicURL})
		}
	}
	return k.session(said.Access.Token.ID, said.Access.Token.Expires, found)
}

func (k *keystone) loginV3(ctx context.Context) (Session, error) {
	user := object{"name": k.username, "password": k.password, "domain": domain(k.userDomain)}
	identity := object{"methods": []string{"password"}, "password": object{"user": user}}
	if k.userToken != "" {
		identity = object{"methods": []string{"token"}, "token": object{"id": k.userToken}}
	}
	who := object{"identity": identity}
	switch {
	case k.tenantID != "":
		who["scope"] = object{"project": object{"id": k.tenantID}}
	case k.tenantName != "":
		who["scope"] = object{"project": object{"name": k.tenantName, "domain": domain(k.projectDomain)}}
	}
	got, err := k.post(ctx, "/auth/tokens", object{"auth": who})
	if err != nil {
		return Session{}, err
	}
	var said struct {
		Token struct {
			Expires string `json:"expires_at"`
			Catalog []struct {
				Name, Type string
				Endpoints  []struct{ Region, Interface, URL string }
			}
		}
	}
	token := got.header.Get("X-Subject-Token")
	if err := json.Unmarshal(got.body, &said); err != nil || token == "" {
		return Session{}, k.fail(access.Server, got.status, "%s answers without a token of version 3", k.url)
	}
	var found []endpoint
	for _, service := range said.Token.Catalog {
		for _, e := range service.Endpoints {
			if e.Interface == "public" {
				found = append(found, endpoint{service.Name, service.Type, e.Region, e.URL})
			}
		}
	}
	return k.session(token, said.Token.Expires, found)
}

// domain names a domain by its id where it is the one that every keystone has, else by its name.
func domain(name string) object {
	if strings.EqualFold(name, "default") {
		return object{"id": "default"}
	}
	return object{"name": name}
}

type endpoint struct{ service, kind, region, url string }

// session finds the store in the catalogue: by the service's name as COSBench does, else by its type.
func (k *keystone) session(token, expires string, all []endpoint) (Session, error) {
	here := func(e endpoint) bool { return k.region == "" || e.region == k.region }
	at := slices.IndexFunc(all, func(e endpoint) bool { return e.service == k.catalogue && here(e) })
	if at < 0 {
		at = slices.IndexFunc(all, func(e endpoint) bool { return e.kind == k.catalogue && here(e) })
	}
	if at < 0 || all[at].url == "" {
		var names []string
		for _, e := range all {
			names = append(names, strings.TrimSpace(e.service+" "+e.region))
		}
		slices.Sort(names)
		in := ""
		if k.region != "" {
			in = " in region " + k.region
		}
		return Session{}, k.fail(access.Client, 0, "the catalogue has no public endpoint of service %s%s; it has: %s; "+
			"see to service and tenant_name", k.catalogue, in, strings.Join(slices.Compact(names), ", "))
	}
	session := Session{StorageURL: strings.TrimRight(all[at].url, "/"), Token: token}
	// One that is over already says that the clocks differ.
	if until, err := time.Parse(time.RFC3339, expires); err == nil && time.Now().Before(until) {
		session.Expires = until
	}
	return session, nil
}
