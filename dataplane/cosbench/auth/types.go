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
		"none":     {Keys: commonKeys, Open: openNone},
		"mock":     {Keys: slices.Concat([]string{"token", "delay"}, commonKeys), Open: openMock},
		"swauth":   {Keys: slices.Concat(swauthKeys, commonKeys), Open: openSwauth},
		"keystone": {Keys: slices.Concat(keystoneKeys, commonKeys), Open: openKeystone},
		"httpauth": {Keys: slices.Concat(httpauthKeys, commonKeys), Open: openHTTPAuth},
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

// openMock takes COSBench's 10 ms for a login, and hands out a token that nobody looks at.
func openMock(ctx context.Context, config access.Config) (Session, error) {
	delay, err := config.Milliseconds("delay", 10*time.Millisecond)
	if err != nil {
		return Session{}, err
	}
	if err := common(config); err != nil {
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
