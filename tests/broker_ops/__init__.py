"""Settings, composition, admin HTTP, command line and what is deployed."""
