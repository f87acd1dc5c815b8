"""One file a subcommand; see cotenant.cli."""
