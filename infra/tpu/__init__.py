"""The TPU slice: facts about machines and topologies, and everything derived from them."""
