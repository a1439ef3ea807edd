// Package limits reads configurations in JSON, and checks their numbers against the limits in their
// fields' tags.
package limits

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"time"
)

// Decode reads a JSON document into out, and rejects unknown fields and anything after the document.
func Decode(text []byte, out any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(out); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("there is more after the JSON document")
	}
	return nil
}

// Span is a duration in JSON: seconds as a number, or text such as "50ms".
type Span time.Duration

// UnmarshalJSON reads either form.
func (s *Span) UnmarshalJSON(text []byte) error {
	var seconds float64
	var word string
	if err := json.Unmarshal(text, &seconds); err == nil && math.Abs(seconds) < 1e9 {
		*s = Span(math.Round(seconds * 1e9))
		return nil
	}
	if err := json.Unmarshal(text, &word); err == nil {
		if d, err := time.ParseDuration(word); err == nil {
			*s = Span(d)
			return nil
		}
	}
	return fmt.Errorf("%s is not a time; write seconds, or text such as \"50ms\"", text)
}

// Seconds returns the span in seconds.
func (s Span) Seconds() float64 { return time.Duration(s).Seconds() }

// MarshalJSON writes seconds.
func (s Span) MarshalJSON() ([]byte, error) { return json.Marshal(s.Seconds()) }

// Check returns an error of one sentence for the first number of a struct that is outside its limits,
// a tag such as `limits:"0 1e6"` (of times in seconds), or NaN. Fields have the names of their JSON
// keys; structs within the struct are checked too.
func Check(config any) error { return check("", reflect.ValueOf(config)) }

func check(prefix string, config reflect.Value) error {
	for i := range config.NumField() {
		field, value := config.Type().Field(i), config.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		name = prefix + name
		if value.Kind() == reflect.Struct {
			within := name + "."
			if field.Anonymous {
				within = prefix
			}
			if err := check(within, value); err != nil {
				return err
			}
		}
		tag, limited := field.Tag.Lookup("limits")
		if !limited {
			continue
		}
		var least, most, number float64
		if _, err := fmt.Sscan(tag, &least, &most); err != nil {
			panic(fmt.Sprintf("limits: the tag %q of %s: %v", tag, name, err))
		}
		if span, ok := value.Interface().(interface{ Seconds() float64 }); ok {
			number = span.Seconds()
		} else if value.CanInt() {
			number = float64(value.Int())
		} else if value.CanUint() {
			number = float64(value.Uint())
		} else {
			number = value.Float()
		}
		if err := Within(name, number, least, most); err != nil {
			return err
		}
	}
	return nil
}

// Within returns an error of one sentence for a number that is outside its limits, or NaN.
func Within(name string, number, least, most float64) error {
	if !(number >= least && number <= most) {
		return fmt.Errorf("%s is %g; allowed is %g to %g", name, number, least, most)
	}
	return nil
}
