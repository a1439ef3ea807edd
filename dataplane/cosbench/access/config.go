// Package access is what reaching an object store takes, whatever the store: a config string of
// COSBench's, and errors that say of which kind a failure is.
package access

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Config is a COSBench config string, "key=value;key=value", after inheritance: a later key
// replaces an earlier one, a child's key its parent's. The zero Config is empty. It may be copied
// and read by many goroutines; copies share the record of which keys were asked for.
type Config struct {
	values map[string]string
	asked  *record
}

type record struct {
	sync.Mutex
	keys map[string]bool
}

// ParseConfig reads a config string. Empty parts are skipped, spaces around keys and values
// dropped; a part without "=" or without a key is an error.
func ParseConfig(text string) (Config, error) {
	config := Config{values: map[string]string{}, asked: &record{keys: map[string]bool{}}}
	for part := range strings.SplitSeq(text, ";") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		key, value, found := strings.Cut(part, "=")
		key = strings.TrimSpace(key)
		if !found || key == "" {
			// The part itself is not shown: it may be half of a password.
			return Config{}, fmt.Errorf("a part of the config is not key=value" +
				" (parts are divided by ;)")
		}
		config.values[key] = strings.TrimSpace(value)
	}
	return config, nil
}

// Keys are all keys, sorted.
func (c Config) Keys() []string { return slices.Sorted(maps.Keys(c.values)) }

// Unasked are the keys that nobody has asked for yet, sorted: what a store says it knows and does not
// read.
func (c Config) Unasked() []string {
	var left []string
	for _, key := range c.Keys() {
		c.asked.Lock()
		if !c.asked.keys[key] {
			left = append(left, key)
		}
		c.asked.Unlock()
	}
	return left
}

// Lookup returns a key's value and whether the key is there.
func (c Config) Lookup(key string) (string, bool) {
	if c.asked != nil {
		c.asked.Lock()
		c.asked.keys[key] = true
		c.asked.Unlock()
	}
	value, found := c.values[key]
	return value, found
}

// String returns a key's value, or what holds without it.
func (c Config) String(key, missing string) string {
	if value, found := c.Lookup(key); found {
		return value
	}
	return missing
}

// Required returns the value of a key that must be there and not be empty.
func (c Config) Required(key string) (string, error) {
	if value, _ := c.Lookup(key); value != "" {
		return value, nil
	}
	return "", fmt.Errorf("%s is missing in the config", key)
}

// Int returns a key's whole number, or what holds without it.
func (c Config) Int(key string, missing int64) (int64, error) {
	text, found := c.Lookup(key)
	if !found {
		return missing, nil
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s=%s is not a whole number", key, text)
	}
	return value, nil
}

// Float returns a key's number, or what holds without it.
func (c Config) Float(key string, missing float64) (float64, error) {
	text, found := c.Lookup(key)
	if !found {
		return missing, nil
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || value != value {
		return 0, fmt.Errorf("%s=%s is not a number", key, text)
	}
	return value, nil
}

// Bool returns a key's true or false, or what holds without it.
func (c Config) Bool(key string, missing bool) (bool, error) {
	text, found := c.Lookup(key)
	if !found {
		return missing, nil
	}
	switch strings.ToLower(text) {
	case "true", "yes", "on":
		return true, nil
	case "false", "no", "off":
		return false, nil
	}
	return false, fmt.Errorf("%s=%s is neither true nor false", key, text)
}

// Milliseconds returns a key's duration, written in milliseconds as COSBench does (timeout), or
// what holds without it.
func (c Config) Milliseconds(key string, missing time.Duration) (time.Duration, error) {
	value, err := c.Int(key, missing.Milliseconds())
	const longest = int64(1) << 40
	if err == nil && (value < 0 || value > longest) {
		err = fmt.Errorf("%s=%d is not a number of milliseconds from 0", key, value)
	}
	return time.Duration(value) * time.Millisecond, err
}
