"""Text in, vectors out: the providers behind one port."""
