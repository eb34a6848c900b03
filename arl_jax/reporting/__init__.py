"""What a run says of itself: numbers, curves, episodes as text."""
