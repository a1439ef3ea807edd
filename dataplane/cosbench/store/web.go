package store

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"hotbed/dataplane/internal/http1"
)

// webKeys are the keys of every store over HTTP. COSBench's are timeout (milliseconds for
// connecting and for each idle period of the store) and logging (not supported). Ours are proxies
// (host:port,host:port, which replace the host of the store's URL and take turns) and proxies_file
// (a file that lists them, reread when it changes). tls_verify=false, also ours, accepts any
// certificate, as COSBench does.
var webKeys = []string{"timeout", "logging", "proxies", "proxies_file", "tls_verify"}

const (
	defaultTimeout = 30 * time.Second // COSBench's
	// aside is how long a worker leaves out an unreachable proxy.
	aside = 2 * time.Second
	// excerpt is the maximum that is read of an error's answer, in bytes.
	excerpt = 4096
	// messageMax is the maximum length of a message, in bytes.
	messageMax = 500
)

// web holds one worker's connections to a store over HTTP: one per proxy, taking turns. It is not
// for concurrent use.
type web struct {
	// request is the next do's request; fields other than the body persist.
	request http1.Request
	path    string // of the store's URL, escaped, without a slash at its end
	name    string // host of the store's URL, without its port

	proxies []proxy
	file    *proxyFile // nil: the proxies do not change
	version int
	options http1.Options
	turn    uint64
	secrets []string // texts that messages must not contain
	body    webBody
	detail  func(body []byte) string // extracts the message of an error's answer

	target, what []byte
	fields       []http1.Field
}

type proxy struct {
	conn  *http1.Conn
	until time.Time // left out until then; zero: in use
}

// begun spreads workers over proxies: the next worker begins with the next proxy.
var begun atomic.Uint64

// webSettings are the values of webKeys, which all workers of a work share.
type webSettings struct {
	timeout time.Duration
	verify  bool
	proxies string
	file    *proxyFile // nil: the proxies do not change
}

// readWeb checks a config: webKeys, and the store's URL if the given key has one.
func readWeb(key string, config Config) (*webSettings, error) {
	s := &webSettings{proxies: config.Text("proxies", "")}
	if at := config.Text(key, ""); at != "" {
		if _, err := storeURL(key, at); err != nil {
			return nil, err
		}
	}
	var err error
	if s.timeout, err = config.Milliseconds("timeout", defaultTimeout); err != nil {
		return nil, err
	}
	if s.verify, err = config.Bool("tls_verify", true); err != nil {
		return nil, err
	}
	if path := config.Text("proxies_file", ""); path != "" {
		if s.proxies != "" {
			return nil, errors.New("proxies and proxies_file both say who is asked; leave one out")
		}
		s.file = &proxyFile{path: path}
	}
	_, err = s.addresses("localhost", "80")
	return s, err
}

func storeURL(key, at string) (*url.URL, error) {
	u, err := url.Parse(at)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%s is not a store's URL; write http://HOST:PORT/PATH", key)
	}
	if u.User != nil {
		return nil, fmt.Errorf("%s has a user in it; the config has keys for names and passwords", key)
	}
	return u, nil
}

// open prepares connections to a store's URL, which the config has under a key; none is opened yet.
func (s *webSettings) open(key, at string, detail func([]byte) string, secrets ...string) (*web, error) {
	u, err := storeURL(key, at)
	if err != nil {
		return nil, err
	}
	w := &web{path: strings.TrimRight(u.EscapedPath(), "/"), name: u.Hostname(), secrets: secrets, turn: begun.Add(1),
		detail: detail}
	w.request.Host = u.Host
	w.body.web = w
	w.options.Timeout = s.timeout
	port := u.Port()
	if u.Scheme == "https" {
		w.options.TLS = &tls.Config{ServerName: w.name, InsecureSkipVerify: !s.verify}
	}
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	addresses, err := s.addresses(w.name, port)
	if err != nil {
		return nil, err
	}
	if w.file = s.file; w.file != nil {
		if err := w.file.open(port); err != nil {
			return nil, fmt.Errorf("proxies_file %s: %w", w.file.path, err)
		}
		w.version, addresses = w.file.now()
	}
	w.use(addresses)
	return w, nil
}

// addresses parses "host:port,host"; the default is the URL's own address.
func (s *webSettings) addresses(host, port string) ([]string, error) {
	if s.proxies == "" {
		return []string{net.JoinHostPort(host, port)}, nil
	}
	return readProxies(strings.Split(s.proxies, ","), port)
}

// readProxies parses host:port or host, with or without http:// in front.
func readProxies(proxies []string, port string) ([]string, error) {
	var out []string
	for _, proxy := range proxies {
		_, host, found := strings.Cut(proxy, "://")
		if !found {
			host = proxy
		}
		u, err := url.Parse("//" + strings.TrimSpace(host))
		if err != nil || u.Hostname() == "" || u.Path != "" || u.User != nil || u.RawQuery != "" {
			return nil, fmt.Errorf("proxies has %.60q, which is not host:port", proxy)
		}
		at := u.Port()
		if at == "" {
			at = port
		}
		out = append(out, net.JoinHostPort(u.Hostname(), at))
	}
	return out, nil
}

// use makes these proxies take turns from now on. Connections to remaining proxies are kept.
func (w *web) use(addresses []string) {
	proxies := make([]proxy, 0, len(addresses))
	for _, address := range addresses {
		at := slices.IndexFunc(w.proxies, func(p proxy) bool { return p.conn.Address() == address })
		if at >= 0 {
			proxies = append(proxies, w.proxies[at])
		} else {
			proxies = append(proxies, proxy{conn: http1.New(address, w.options)})
		}
	}
	for _, p := range w.proxies {
		if !slices.Contains(addresses, p.conn.Address()) {
			_ = p.conn.Close()
		}
	}
	w.proxies = proxies
}

// Close ends the connections.
func (w *web) Close() {
	for _, p := range w.proxies {
		_ = p.conn.Close()
	}
}

// do sends the request to the next proxy and reads the answer's header. The answer is valid until
// the next do; its body must be read to its end, or closed. `what` names the request in messages.
func (w *web) do(ctx context.Context, what string, q call) (*http1.Response, error) {
	if w.file != nil {
		if version, addresses := w.file.now(); version != w.version {
			w.version = version
			w.use(addresses)
		}
	}
	p := w.next()
	w.request.Length = q.length
	if q.body != nil {
		w.request.Body = q.body
	}
	response, err := p.conn.Do(ctx, &w.request)
	w.request.Body = nil // the caller owns it
	if err == nil {
		return response, nil
	}
	var lost *http1.Error
	if errors.As(err, &lost) && lost.Reason == http1.Unreached {
		p.until = time.Now().Add(aside)
	}
	return nil, w.lost(p, what, err)
}

// next returns the next proxy. It leaves out an unreachable proxy for a while, unless no other is
// left: a load balancer must also detect failures by trying.
func (w *web) next() *proxy {
	n := uint64(len(w.proxies))
	for range n {
		w.turn++
		p := &w.proxies[w.turn%n]
		if p.until.IsZero() {
			return p
		}
		if n == 1 || time.Now().After(p.until) {
			p.until = time.Time{}
			return p
		}
	}
	w.turn++
	return &w.proxies[w.turn%n]
}

// webBody is an answer's body with errors that are *Error.
type webBody struct {
	web      *web
	response *http1.Response
	proxy    *proxy
	what     string
}

func (w *web) answer(response *http1.Response, what string) io.ReadCloser {
	w.body.response, w.body.what, w.body.proxy = response, what, &w.proxies[w.turn%uint64(len(w.proxies))]
	return &w.body
}

func (b *webBody) Read(p []byte) (int, error) {
	n, err := b.response.Read(p)
	if err != nil && err != io.EOF {
		err = b.web.lost(b.proxy, b.what, err)
	}
	return n, err
}

// WriteTo is Read in large pieces.
func (b *webBody) WriteTo(out io.Writer) (int64, error) {
	n, err := b.response.WriteTo(out)
	if err != nil {
		err = b.web.lost(b.proxy, b.what, err)
	}
	return n, err
}

func (b *webBody) Close() error { return b.response.Close() }

// lost returns the error of a request without a complete answer.
func (w *web) lost(p *proxy, what string, err error) error {
	var e *http1.Error
	if !errors.As(err, &e) {
		return err // from reading the body
	}
	kind := Other
	switch e.Reason {
	case http1.Ended:
		return ended(e.Err)
	case http1.Unreached:
		kind = Refused
		if errors.Is(e, os.ErrDeadlineExceeded) {
			kind = Timeout
		}
	case http1.Broken:
		kind = Refused
	case http1.Stalled:
		kind = Timeout
	case http1.Malformed:
		kind = Server
	}
	return w.failure(kind, "%s at %s: %v", what, p.conn.Address(), e)
}

// kindOfStatus returns the kind of failure that an HTTP status reports.
func kindOfStatus(status int) string {
	switch {
	case status == 404:
		return NotFound
	case status == 401 || status == 403:
		return Auth
	case status == 408:
		return Timeout
	case status == 429 || status == 498:
		return Server // it asks for fewer requests: 498 is Swift's
	case status >= 400 && status < 500:
		return Other
	}
	return Server
}

// refused returns the error of an unsuccessful answer, and closes the answer.
func (w *web) refused(response *http1.Response, what string) error {
	status, reason, transaction := response.Status, response.Reason(), response.Header("X-Trans-Id")
	if transaction == "" {
		transaction = response.Header("X-Amz-Request-Id")
	}
	message := what + " is answered by " + strings.TrimSpace(reason)
	if reason == "" {
		message = what + " is refused"
	}
	if text := strings.TrimSpace(w.detail(response.Excerpt(excerpt))); text != "" {
		message += ": " + text
	}
	if transaction != "" {
		message += "; transaction " + transaction
	}
	return &Error{Kind: kindOfStatus(status), Status: status, Message: w.clean(message)}
}

// failure returns a client-side error about a request.
func (w *web) failure(kind, format string, args ...any) error {
	return &Error{Kind: kind, Message: w.clean(fmt.Sprintf(format, args...))}
}

// clean makes one short line without secrets: a server may repeat the request.
func (w *web) clean(message string) string {
	for _, secret := range w.secrets {
		if secret != "" {
			message = strings.ReplaceAll(message, secret, "***")
		}
	}
	message = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(message, "?"))
	message = strings.Join(strings.Fields(message), " ")
	if len(message) > messageMax {
		message = strings.ToValidUTF8(message[:messageMax], "") + "..."
	}
	return message
}

const hexDigits = "0123456789ABCDEF"

// appendEscaped appends a name as a part of a path or a query: all except letters, digits and
// "-._~" become "%XX", as AWS's signature requires. With keep, slashes stay.
func appendEscaped(b []byte, name string, keep bool) []byte {
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_', c == '~',
			keep && c == '/':
			b = append(b, c)
		default:
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return b
}

// proxyFile is a file that lists a store's proxies, which a deployment leaves on its clients: JSON
// with a list "proxies". It is reread when it changes, because proxies may change while a workload
// runs. All workers of a work share it.
type proxyFile struct {
	path, port string // port: the default port

	mu        sync.Mutex
	due       time.Time
	seen      os.FileInfo
	version   int
	addresses []string
}

// open reads the file for the first time.
func (f *proxyFile) open(port string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen != nil {
		return nil
	}
	f.port = port
	return f.look()
}

// now returns the file's version and addresses; it checks the file once a second. If the file
// is unreadable or lists no proxies, the known addresses stay.
func (f *proxyFile) now() (version int, addresses []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.After(f.due) {
		f.due = now.Add(time.Second)
		_ = f.look()
	}
	return f.version, f.addresses
}

func (f *proxyFile) look() error {
	info, err := os.Stat(f.path)
	if err != nil {
		return err
	}
	// A deployment replaces the file instead of writing it again.
	if f.seen != nil && os.SameFile(f.seen, info) && info.ModTime().Equal(f.seen.ModTime()) && info.Size() == f.seen.Size() {
		return nil
	}
	data, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	var content struct {
		Proxies []string `json:"proxies"`
	}
	if json.Unmarshal(data, &content) != nil || len(content.Proxies) == 0 {
		return errors.New(`it is no JSON with a list "proxies" of one address or more`)
	}
	found, err := readProxies(content.Proxies, f.port)
	if err != nil {
		return err
	}
	f.seen = info
	if !slices.Equal(found, f.addresses) {
		f.addresses = found
		f.version++
	}
	return nil
}
