"""What a run is made of: settings, environment, policy, steps, report."""
