package stores

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"hotbed/dataplane/cosbench/access"
	"hotbed/dataplane/cosbench/auth"
	"hotbed/dataplane/cosbench/storage"
	"hotbed/dataplane/cosbench/storage/storagetest"
)

// real opens a store that a test may use: HOTBED_SWIFT is "TYPE CONFIG [AUTHTYPE AUTHCONFIG]", several of
// them divided by "|", such as "swift timeout=10000 swauth username=...;password=...;auth_url=...". It
// stands in the environment, as it has passwords.
func real(t testing.TB, description string) storage.Storage {
	t.Helper()
	words := strings.Fields(description)
	parse := func(text string) access.Config {
		config, err := access.ParseConfig(text)
		if err != nil {
			t.Fatal(err)
		}
		return config
	}
	if len(words) != 2 && len(words) != 4 {
		t.Fatalf("HOTBED_SWIFT has %d words for a store", len(words))
	}
	var session auth.Session
	if len(words) == 4 {
		var err error
		if session, err = auth.Types()[words[2]].Open(t.Context(), parse(words[3])); err != nil {
			t.Fatal(err)
		}
	}
	s, err := All()[words[0]].Open(parse(words[1]), session)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func descriptions(t testing.TB) []string {
	t.Helper()
	text := os.Getenv("HOTBED_SWIFT")
	if text == "" {
		t.Skip("needs a Swift: HOTBED_SWIFT says which, and as whom")
	}
	return strings.Split(text, "|")
}

func TestRealStoresKeepTheContract(t *testing.T) {
	for i, description := range descriptions(t) {
		kind, _, _ := strings.Cut(strings.TrimSpace(description), " ")
		t.Run(kind, func(t *testing.T) {
			storagetest.Contract(t, real(t, description), fmt.Sprintf("contract-%d", i), storagetest.Traits{})
		})
	}
}

// BenchmarkReal tells the CPU that this side spends on a request to a real store.
func BenchmarkReal(b *testing.B) {
	for _, description := range descriptions(b) {
		kind, _, _ := strings.Cut(strings.TrimSpace(description), " ")
		s := real(b, description)
		if err := s.CreateContainer(b.Context(), "bench"); err != nil {
			b.Fatal(err)
		}
		for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
			content := bytes.Repeat([]byte{'x'}, size)
			operations := map[string]func() error{
				"PUT": func() error {
					return s.Put(b.Context(), "bench", "object", bytes.NewReader(content), int64(size))
				},
				"GET": func() error {
					body, _, err := s.Get(b.Context(), "bench", "object")
					if err == nil {
						_, err = io.Copy(io.Discard, body)
					}
					return err
				},
			}
			for _, verb := range []string{"PUT", "GET"} {
				b.Run(fmt.Sprintf("%s/%s/%d", kind, verb, size), func(b *testing.B) {
					b.ReportAllocs()
					before := processor()
					for range b.N {
						if err := operations[verb](); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64((processor()-before).Microseconds())/float64(b.N), "cpu-us/op")
				})
			}
		}
	}
}

func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
