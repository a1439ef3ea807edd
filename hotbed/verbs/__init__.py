"""One module a verb; each offers ``register(app)``."""
