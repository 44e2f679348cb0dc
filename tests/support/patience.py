"""How long a test waits for another process before it gives up."""

PATIENCE_SECONDS = 600
"""Longer than anything takes on a machine with ten times the load that it has cores.

What comes is not waited for any longer, and giving up early says nothing about the code.
"""
