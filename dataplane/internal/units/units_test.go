package units

import "testing"

func TestBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "4096": 4096, "12GiB": 12 << 30, "1.5 MB": 1500000, "2TB": 2e12, "7B": 7,
	} {
		if got, err := Bytes(text); err != nil || got != want {
			t.Errorf("Bytes(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "GiB", "12G", "-1", "1.5", "12Gib", "1e300", "0x10", "NaN"} {
		if got, err := Bytes(text); err == nil {
			t.Errorf("Bytes(%q) = %d, want an error", text, got)
		}
	}
}

func TestRate(t *testing.T) {
	for text, want := range map[string]float64{
		"60MB/s": 60e6, "1MiB/s": 1 << 20, "5e0": 5, "100": 100,
	} {
		if got, err := Rate(text); err != nil || got != want {
			t.Errorf("Rate(%q) = %g, %v; want %g", text, got, err, want)
		}
	}
	for _, text := range []string{"", "fast", "60Mb/s", "60MB/h", "-5MB/s", "Inf"} {
		if got, err := Rate(text); err == nil {
			t.Errorf("Rate(%q) = %g, want an error", text, got)
		}
	}
}
