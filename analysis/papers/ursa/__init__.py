"""The Ursa paper's figures and claims."""
