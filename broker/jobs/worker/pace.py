"""How fast bytes may be moved: so many a second, with a second's worth at once. Pure."""


class Pace:
    """Callers say what they are about to move, and hear how long to wait before that."""

    def __init__(self, bytes_per_second: float) -> None:
        assert bytes_per_second > 0
        self.rate = bytes_per_second
        self._paid_s = float("-inf")
        """When all that was allowed is paid for; later than now while there is debt."""

    def wait_s(self, length: int, now_s: float) -> float:
        """Count `length` bytes; seconds until they may be moved.

        What comes while there is no debt begins at once, however much it is, and those who come
        later wait for it: so a request larger than a second's worth is not held up for ever.
        """
        assert length >= 0
        paid_s = max(self._paid_s, now_s - 1.0)
        self._paid_s = paid_s + length / self.rate
        return max(0.0, paid_s - now_s)
