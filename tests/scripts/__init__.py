"""Stories of the machine in text: commands, and the outcomes they must have."""
