"""Google Cloud: one component a file, and the facts about GKE they rest on."""
