"""The `raytpu` command."""
