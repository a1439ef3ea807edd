// Package web is what the object stores that are spoken to by HTTP have in common: one worker's
// connections to a store's proxies, and what a failure is called.
package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"hotbed/dataplane/cosbench/access"
	"hotbed/dataplane/internal/http1"
)

// Keys are those of every such store: COSBench's timeout (milliseconds that connecting may take, and
// that the store may do nothing) and logging (nothing is logged here), and of our own proxies (host:port,
// host:port: the requests go round between these, in place of the host of the store's URL), proxies_file
// (one that names them, read again when it changes) and tls_verify (false: certificates that nobody vouches
// for are taken, as COSBench does).
var Keys = []string{"timeout", "logging", "proxies", "proxies_file", "tls_verify"}

const (
	// Timeout is COSBench's.
	defaultTimeout = 30 * time.Second
	// aside is for how long a proxy that cannot be reached is left out, by one worker.
	aside = 2 * time.Second
	// excerpt is how much of an answer is read that tells of an error, in bytes.
	excerpt = 4096
)

// Client has one worker's connections: one to each proxy, which take turns. It is not for concurrent use.
type Client struct {
	// Request is what the next Do sends; it keeps what it does not set.
	Request http1.Request
	// Path is the store's URL's own, escaped, without a slash at its end.
	Path string
	// Name is the host of the store's URL, without its port.
	Name string

	proxies []proxy
	file    *listed // nil: the proxies stay
	version uint64
	options http1.Options
	turn    uint64
	secrets []string
	body    body
}

type proxy struct {
	conn  *http1.Conn
	until time.Time // left out till then; zero: no
}

// begun spreads workers over proxies: the next one begins with the next proxy.
var begun atomic.Uint64

// New makes the connections to a store at a URL, which key says; none of them is opened yet. Secrets
// are what no message may show.
func New(key, at string, config access.Config, secrets ...string) (*Client, error) {
	u, err := storeURL(key, at)
	if err != nil {
		return nil, err
	}
	s, err := read(config)
	if err != nil {
		return nil, err
	}
	c := &Client{Path: strings.TrimRight(u.EscapedPath(), "/"), Name: u.Hostname(), secrets: secrets, turn: begun.Add(1)}
	c.Request.Host = u.Host
	c.body.client = c
	c.options.Timeout = s.timeout
	port := u.Port()
	if u.Scheme == "https" {
		c.options.TLS = &tls.Config{ServerName: c.Name, InsecureSkipVerify: !s.verify}
	}
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	addresses, err := addresses(s.proxies, c.Name, port)
	if err != nil {
		return nil, err
	}
	if path := s.proxiesFile; path != "" {
		if c.file, err = listedIn(path, port); err != nil {
			return nil, err
		}
		c.version, addresses = c.file.now()
	}
	c.use(addresses)
	return c, nil
}

// Check says what of a config is wrong, whatever else is found out until a client is made: the store's
// URL, which key says, may come from elsewhere, and a file of proxies lies where the client is.
func Check(key string, config access.Config) error {
	if at := config.String(key, ""); at != "" {
		if _, err := storeURL(key, at); err != nil {
			return err
		}
	}
	s, err := read(config)
	if err != nil {
		return err
	}
	_, err = addresses(s.proxies, "localhost", "80")
	return err
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

// settings are the values of Keys.
type settings struct {
	timeout              time.Duration
	verify               bool
	proxies, proxiesFile string
}

func read(config access.Config) (s settings, err error) {
	if _, err = config.Bool("logging", false); err != nil {
		return s, err
	}
	if s.timeout, err = config.Milliseconds("timeout", defaultTimeout); err != nil {
		return s, err
	}
	if s.verify, err = config.Bool("tls_verify", true); err != nil {
		return s, err
	}
	s.proxies, s.proxiesFile = config.String("proxies", ""), config.String("proxies_file", "")
	if s.proxies != "" && s.proxiesFile != "" {
		return s, errors.New("proxies and proxies_file both say who is asked; leave one out")
	}
	return s, nil
}

// use has these proxies take turns from now on. Connections to those that stay are kept.
func (c *Client) use(addresses []string) {
	proxies := make([]proxy, 0, len(addresses))
	for _, address := range addresses {
		at := slices.IndexFunc(c.proxies, func(p proxy) bool { return p.conn.Address() == address })
		if at >= 0 {
			proxies = append(proxies, c.proxies[at])
		} else {
			proxies = append(proxies, proxy{conn: http1.New(address, c.options)})
		}
	}
	for _, p := range c.proxies {
		if !slices.Contains(addresses, p.conn.Address()) {
			_ = p.conn.Close()
		}
	}
	c.proxies = proxies
}

// addresses reads "host:port,host"; without any it is the URL's own.
func addresses(proxies, host, port string) ([]string, error) {
	if proxies == "" {
		return []string{net.JoinHostPort(host, port)}, nil
	}
	return each(strings.Split(proxies, ","), port)
}

// each reads host:port or host, with http:// before it or without.
func each(proxies []string, port string) ([]string, error) {
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

// Close ends the connections.
func (c *Client) Close() error {
	for _, p := range c.proxies {
		_ = p.conn.Close()
	}
	return nil
}

// Do sends Request to the next proxy, and reads the answer's header. The answer is good until the next
// Do; its body is to be read to its end, or closed. What says what is asked for, in messages.
func (c *Client) Do(ctx context.Context, what string) (*http1.Response, error) {
	if c.file != nil {
		if version, addresses := c.file.now(); version != c.version {
			c.version = version
			c.use(addresses)
		}
	}
	p := c.next()
	response, err := p.conn.Do(ctx, &c.Request)
	// A body is the caller's, and not to be kept.
	c.Request.Body, c.Request.Length = nil, 0
	if err == nil {
		return response, nil
	}
	var lost *http1.Error
	if errors.As(err, &lost) && lost.Reason == http1.Unreached {
		p.until = time.Now().Add(aside)
	}
	return nil, c.lost(p, what, err)
}

// next is the proxy whose turn it is. One that could not be reached is left out for a while, unless no
// other is left: like a load balancer, which has to find out too.
func (c *Client) next() *proxy {
	n := uint64(len(c.proxies))
	for range n {
		c.turn++
		p := &c.proxies[c.turn%n]
		if p.until.IsZero() {
			return p
		}
		if n == 1 || time.Now().After(p.until) {
			p.until = time.Time{}
			return p
		}
	}
	c.turn++
	return &c.proxies[c.turn%n]
}

// Body is an answer's body, whose errors are *access.Error.
func (c *Client) Body(response *http1.Response, what string) io.ReadCloser {
	c.body.response, c.body.what, c.body.proxy = response, what, &c.proxies[c.turn%uint64(len(c.proxies))]
	return &c.body
}

type body struct {
	client   *Client
	response *http1.Response
	proxy    *proxy
	what     string
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.response.Read(p)
	if err != nil && err != io.EOF {
		err = b.client.lost(b.proxy, b.what, err)
	}
	return n, err
}

// WriteTo is Read in large pieces.
func (b *body) WriteTo(w io.Writer) (int64, error) {
	n, err := b.response.WriteTo(w)
	if err != nil {
		err = b.client.lost(b.proxy, b.what, err)
	}
	return n, err
}

func (b *body) Close() error { return b.response.Close() }
