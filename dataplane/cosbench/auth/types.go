package auth

import (
	"context"
	"fmt"
	"slices"
	"time"

	"hotbed/dataplane/cosbench/access"
)

// Types are the auth types of a workload's XML. Any other is refused.
func Types() Registry {
	return Registry{
		"none":     {Keys: commonKeys, Check: common, Open: openNone},
		"mock":     {Keys: slices.Concat([]string{"token", "delay"}, commonKeys), Check: checkMock, Open: openMock},
		"swauth":   {Keys: slices.Concat(swauthKeys, commonKeys), Check: checked(newSwauth), Open: openSwauth},
		"keystone": {Keys: slices.Concat(keystoneKeys, commonKeys), Check: checked(newKeystone), Open: openKeystone},
		"httpauth": {Keys: slices.Concat(httpauthKeys, commonKeys), Check: checked(newHTTPAuth), Open: openHTTPAuth},
	}
}

// checked says what of a service's config is wrong: making one asks nobody.
func checked[S any](made func(access.Config) (S, error)) func(access.Config) error {
	return func(config access.Config) error {
		_, err := made(config)
		return err
	}
}

// commonKeys are known to all: COSBench's logging of each authentication, which is not done here, and
// caching of what came of it, which is always done.
var commonKeys = []string{"logging", "caching"}

func common(config access.Config) error {
	for _, key := range commonKeys {
		if _, err := config.Bool(key, false); err != nil {
			return err
		}
	}
	return nil
}

func openNone(_ context.Context, config access.Config) (Session, error) {
	return Session{}, common(config)
}

func checkMock(config access.Config) error {
	_, err := delayOfMock(config)
	return err
}

func delayOfMock(config access.Config) (time.Duration, error) {
	if err := common(config); err != nil {
		return 0, err
	}
	return config.Milliseconds("delay", 10*time.Millisecond)
}

// openMock takes COSBench's 10 ms for a login, and hands out a token that nobody looks at.
func openMock(ctx context.Context, config access.Config) (Session, error) {
	delay, err := delayOfMock(config)
	if err != nil {
		return Session{}, err
	}
	session := Session{Token: config.String("token", "token")}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return session, nil
	case <-ctx.Done():
		return Session{}, fmt.Errorf("auth type mock: %w", access.Ended(ctx.Err()))
	}
}
