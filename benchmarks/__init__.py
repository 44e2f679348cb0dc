"""How fast the queue is: ratios, measured side by side in one run."""
