"""A node agent: runs the pods of its nodes as processes of this machine, as a kubelet would."""

from tools.cluster.kubelet.agent import Kubelet

__all__ = ["Kubelet"]
