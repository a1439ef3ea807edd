"""Engine of campaigns: plan, session, attempts, run store, locks and leases."""
