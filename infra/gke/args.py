"""What each resource of Google Cloud is called with.

A pure function decides the keyword arguments of one class of the SDK, as plain values; a component
calls the class with them. So `raytpu render` shows the same arguments without engine, SDK or
network, and tests read them.
"""

from typing import Any

Args = dict[str, Any]
"""Keyword arguments, in the SDK's names; nested blocks are dicts."""
