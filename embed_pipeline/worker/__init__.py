"""What turns leased jobs into vectors."""
