// Package limits checks the numbers of a configuration against the limits in their fields' tags.
package limits

import (
	"fmt"
	"reflect"
	"strings"
)

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
			if err := check(name+".", value); err != nil {
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
