"""What tests are made of; typed, and checked by mypy as the packages are.

`plugin` runs `async def test_…` on `loop`, an event loop on virtual time.
"""
