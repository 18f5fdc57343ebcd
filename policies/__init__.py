"""Rules over cloud resources and Kubernetes objects, whoever wrote them, and their verdict."""
