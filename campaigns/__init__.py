"""The experiment engine: campaign files, plans, the ledger, cells, and their execution."""
