"""One page about the queue that can be mailed: what an owner asks, answered from its history."""
