package cosbench

import (
	"slices"
	"strings"

	"hotbed/dataplane/cosbench/access"
)

// setting is one key=value of a config string.
type setting struct{ key, value string }

// splitConfig reads a config string in its order; a key that is there twice keeps its first place
// and takes its last value, as in COSBench.
func splitConfig(text string) ([]setting, error) {
	if _, err := access.ParseConfig(text); err != nil {
		return nil, err
	}
	var settings []setting
	for part := range strings.SplitSeq(text, ";") {
		key, value, found := strings.Cut(part, "=")
		if !found {
			continue // empty: anything else has been refused
		}
		s := setting{strings.TrimSpace(key), strings.TrimSpace(value)}
		at := slices.IndexFunc(settings, func(have setting) bool { return have.key == s.key })
		if at < 0 {
			settings = append(settings, s)
		} else {
			settings[at].value = s.value
		}
	}
	return settings, nil
}

// inherit is a child's config string on top of its parent's: the child's keys win.
func inherit(parent, child Config) (Config, error) {
	settings, err := splitConfig(string(parent + ";" + child))
	return Config(joinConfig(settings)), err
}

func joinConfig(settings []setting) string {
	parts := make([]string, len(settings))
	for i, s := range settings {
		parts[i] = s.key + "=" + s.value
	}
	return strings.Join(parts, ";")
}

// secrets are the keys whose values nobody gets to see.
var secrets = []string{"password", "secretkey", "token", "accesskey", "key", "secret", "usertoken"}

// Config is a config string. Wherever it is shown, as text or as JSON, *** stands for the values of
// passwords, keys and tokens.
type Config string

func (c Config) String() string {
	settings, err := splitConfig(string(c))
	if err != nil {
		return "***" // what cannot be read cannot be told apart from a secret
	}
	for i, s := range settings {
		if slices.Contains(secrets, strings.ToLower(s.key)) {
			settings[i].value = "***"
		}
	}
	return joinConfig(settings)
}

// MarshalText masks in JSON, too.
func (c Config) MarshalText() ([]byte, error) { return []byte(c.String()), nil }
