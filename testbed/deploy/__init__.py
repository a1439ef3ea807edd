"""Deployment of a testbed's store with Ansible, and operations on the deployed store."""
