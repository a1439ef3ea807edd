"""Agent on the admin node and the engine's client for it."""
