"""What several tests build on. Nothing here is a test."""
