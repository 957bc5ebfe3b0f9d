"""What is tried when something is wrong."""
