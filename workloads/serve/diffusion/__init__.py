"""Pictures from text: a diffusion model in Flax that Serve runs on a slice."""
