"""The embedded schema registry: its pure rules, and its REST API over agents in memory."""
