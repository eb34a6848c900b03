"""The three doors between the device world and the host world."""
