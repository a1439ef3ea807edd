// Package command is what the programs have in common: a mistake of the user's is one sentence and
// exit status 2, what else goes wrong is exit status 1, and a call for help is none of both.
package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// UsageError is a mistake in what was asked for: one sentence, exit status 2.
type UsageError struct{ error }

// Usage says that err is the user's mistake.
func Usage(err error) error { return UsageError{err} }

// Usagef makes a sentence of a mistake.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// Exit tells what ended the program of that name, and ends it with its status; a program that did
// what it was asked for, or was asked for help, goes on.
func Exit(name string, err error) {
	if status := status(os.Stderr, name, err); status != 0 {
		os.Exit(status)
	}
}

func status(out io.Writer, name string, err error) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	_, _ = fmt.Fprintf(out, "%s: %v\n", name, err)
	if usage := (UsageError{}); errors.As(err, &usage) {
		return 2
	}
	return 1
}

// Parse reads flags, and takes no other arguments. Asked for help it prints them below usage, and
// says flag.ErrHelp.
func Parse(flags *flag.FlagSet, args []string, usage string) error {
	flags.SetOutput(new(strings.Builder)) // one sentence, not the flag package's page
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(os.Stdout)
		fmt.Printf("usage: %s %s\n", flags.Name(), usage)
		flags.PrintDefaults()
		return err
	case err != nil:
		return Usagef("%v; `%s --help` lists the flags", err, flags.Name())
	case flags.NArg() > 0:
		return Usagef("unexpected argument %q; `%s --help` lists the flags", flags.Arg(0), flags.Name())
	}
	return nil
}
