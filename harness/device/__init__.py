"""The device tier: plan → processes → samples → evidence. It measures and records; it never judges a
claim."""
