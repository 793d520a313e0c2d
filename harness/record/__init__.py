"""The record tier: what the published evidence itself says of the published claims."""
