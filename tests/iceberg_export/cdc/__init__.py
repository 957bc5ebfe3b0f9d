"""Tables beside the databases that change data capture copies them from."""
