// Package units parses the quantities of the data plane's command lines.
package units

import (
	"fmt"
	"strconv"
	"strings"
)

var factors = map[string]float64{
	"B":  1,
	"kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}

func parse(text string) (float64, error) {
	end := strings.LastIndexAny(text, "0123456789.") + 1
	value, err := strconv.ParseFloat(text[:end], 64)
	if err != nil {
		return 0, fmt.Errorf("no number")
	}
	unit := strings.TrimSpace(text[end:])
	if unit == "" {
		unit = "B"
	}
	factor, ok := factors[unit]
	if !ok {
		return 0, fmt.Errorf("unknown unit")
	}
	return value * factor, nil
}

// Bytes parses a size such as 12GiB, 500MB or 12884901888 (bytes). The error is a whole sentence.
func Bytes(text string) (int64, error) {
	v, err := parse(text)
	if err != nil || v < 0 || v > 1<<62 || v != float64(int64(v)) {
		return 0, fmt.Errorf("%q is not a size; write whole bytes or a number with B, kB, MB, GB, "+
			"TB, KiB, MiB, GiB or TiB, such as 12GiB", text)
	}
	return int64(v), nil
}

// Rate parses a bandwidth such as 60MB/s or 60000000 (bytes per second). The error is a whole
// sentence.
func Rate(text string) (float64, error) {
	v, err := parse(strings.TrimSuffix(text, "/s"))
	if err != nil || v < 0 {
		return 0, fmt.Errorf("%q is not a bandwidth; write bytes per second or a number with kB/s, "+
			"MB/s, GB/s, KiB/s, MiB/s or GiB/s, such as 60MB/s", text)
	}
	return v, nil
}
