"""The Pulumi program and the `raytpu` command: what exists, and what it is told."""
