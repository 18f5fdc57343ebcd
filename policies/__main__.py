"""What the engine starts: `pulumi preview --policy-pack policies`. It serves until it is ended."""

from pulumi_policy import PolicyPack

from policies.pack import policies

PolicyPack(name="raytpu", policies=[*policies()])
