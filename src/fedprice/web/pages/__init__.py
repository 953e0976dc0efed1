"""What a browser shows, one page per file."""
