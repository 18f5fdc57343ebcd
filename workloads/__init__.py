"""What runs inside the cluster. Imports no Pulumi and nothing of `infra`."""
