"""One module per verb; each offers ``register(app)``."""
