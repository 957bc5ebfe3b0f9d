"""Consumer groups: live groups as pure values, and the shell around them."""
