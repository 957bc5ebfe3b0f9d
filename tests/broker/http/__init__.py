"""HTTP listeners, whatever they serve."""
