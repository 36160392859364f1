"""Worlds in containers: made from an image, or joined."""
