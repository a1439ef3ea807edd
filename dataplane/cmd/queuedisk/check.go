package main

import (
	"context"
	"errors"
)

func check(context.Context, []string) error { return errors.New("todo") }
