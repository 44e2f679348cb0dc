"""A thousand drains that nobody has to start: discrete events, from measured costs."""
