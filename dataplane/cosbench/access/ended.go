package access

import (
	"context"
	"errors"
	"fmt"
)

// Ended is the error of a request whose context ended with err: of kind Timeout where its time was
// over, else of kind Client, since it was called off. errors.Is still finds the context's error.
func Ended(err error) error {
	kind, message := Client, "the request was called off"
	if errors.Is(err, context.DeadlineExceeded) {
		kind, message = Timeout, "the request's time was over"
	}
	return fmt.Errorf("%w: %w", &Error{Kind: kind, Message: message}, err)
}
