"""The slice check: what each host of a slice has, and how fast they are together."""
