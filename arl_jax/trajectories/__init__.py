"""Episodes on disk: what was sampled, for a resume and for others to train."""
