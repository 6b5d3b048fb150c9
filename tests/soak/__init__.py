"""A soak that keeps score: a site under a seeded adversary, then peace, then the count of what nobody was told."""
