"""The verbs of `hotbed`, one a module: a function `verb`, or a Typer application `group`."""
