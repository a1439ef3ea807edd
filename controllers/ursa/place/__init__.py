"""Where the selected objects go: one module a method, see `controllers.ursa.methods`."""
