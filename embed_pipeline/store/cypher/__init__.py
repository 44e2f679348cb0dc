"""Every statement of the queue, as named constants."""
