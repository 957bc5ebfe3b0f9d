"""What one client can do, a file for each kind of harm; `ATTACKS` in `scene` has them all by name."""
