"""An OpenAI-compatible endpoint on Ray Serve, with its own engine for one slice."""
