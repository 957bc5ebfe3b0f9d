"""What operators do by the console."""
