"""The console: what is on its pages, and who is shown them."""
