"""What the pricing commands read and compute, one command per file.

`fedprice.cli` shows it, and the page and the API of `fedprice.web` return it. Nothing here depends
on a terminal or the web. Errors name options as the command line spells them, such as
`--max-weight`.
"""
