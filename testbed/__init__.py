"""Testbeds: specs, sites, stores, deployment and the admin node's agent."""
