"""What `cotenant doctor` looks at."""
