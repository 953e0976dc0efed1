"""The page: fedprice in a browser, one page per file over plain functions."""
