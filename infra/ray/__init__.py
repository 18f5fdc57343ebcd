"""Kubernetes objects of a stack: plain dicts of pure functions, and what registers them."""
