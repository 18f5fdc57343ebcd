"""A Kubernetes cluster of real programs on this machine, whose pods run as processes."""
