package web

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"hotbed/dataplane/cosbench/access"
	"hotbed/dataplane/internal/http1"
)

// lost is the error of a request without a whole answer.
func (c *Client) lost(p *proxy, what string, err error) error {
	var e *http1.Error
	if !errors.As(err, &e) {
		return err // the reader's of the body
	}
	kind := access.Client
	switch e.Reason {
	case http1.Ended:
		return access.Ended(e.Err)
	case http1.Unreached:
		kind = access.Refused
		if errors.Is(e, os.ErrDeadlineExceeded) {
			kind = access.Timeout
		}
	case http1.Broken:
		kind = access.Refused
	case http1.Stalled:
		kind = access.Timeout
	case http1.Malformed:
		kind = access.Server
	}
	return &access.Error{Kind: kind, Message: c.clean(fmt.Sprintf("%s at %s: %v", what, p.conn.Address(), e))}
}

// KindOf says of which kind a failure is that an HTTP status tells.
func KindOf(status int) string {
	switch {
	case status == 404:
		return access.NotFound
	case status == 401 || status == 403:
		return access.Auth
	case status == 408:
		return access.Timeout
	case status == 429 || status == 498:
		return access.Server // it asks for fewer requests: 498 is Swift's
	case status >= 400 && status < 500:
		return access.Client
	}
	return access.Server
}

// Refused is the error of an answer that is not a success; the answer is closed. Detail finds in the
// beginning of its body what is worth telling; nil: nothing.
func (c *Client) Refused(response *http1.Response, what string, detail func(body []byte) string) error {
	status, reason, transaction := response.Status, response.Reason(), response.Header("X-Trans-Id")
	if transaction == "" {
		transaction = response.Header("X-Amz-Request-Id")
	}
	message := what + " is answered by " + strings.TrimSpace(reason)
	if reason == "" {
		message = what + " is refused"
	}
	if detail == nil {
		_ = response.Close()
	} else if text := strings.TrimSpace(detail(response.Excerpt(excerpt))); text != "" {
		message += ": " + text
	}
	if transaction != "" {
		message += "; transaction " + transaction
	}
	return &access.Error{Kind: KindOf(status), Status: status, Message: c.clean(message)}
}

// Failure is an error of our own about a request.
func (c *Client) Failure(kind, format string, args ...any) error {
	return &access.Error{Kind: kind, Message: c.clean(fmt.Sprintf(format, args...))}
}

// Hide replaces the secrets.
func (c *Client) Hide(secrets ...string) { c.secrets = secrets }

const messageMax = 500

// clean makes one short line without secrets: what a server says may repeat what it was told.
func (c *Client) clean(message string) string {
	for _, secret := range c.secrets {
		if secret != "" {
			message = strings.ReplaceAll(message, secret, "***")
		}
	}
	message = strings.ToValidUTF8(strings.Join(strings.Fields(message), " "), "?")
	message = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, message)
	if len(message) > messageMax {
		message = strings.ToValidUTF8(message[:messageMax], "") + "..."
	}
	return message
}
