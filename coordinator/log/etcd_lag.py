"""Whether the member of etcd that a watch is on lacks what others have answered long ago.

A member that is cut off from the others goes on answering requests for progress, for three election
timeouts and more, until it says that there is no leader. What it lacks tells earlier.
"""

ANSWERS_MAX = 2


class Lag:
    """Of one watch."""

    def __init__(self, *, every_s: float) -> None:
        """`every_s`: from one request for progress to the next."""
        self._apart_s = every_s / 2
        self._expected = 0
        """What the next answer is to know of."""
        self._behind = 0
        """How many answers in a row did not."""
        self._judged_s = 0.0

    def is_too_long(self, revision: int, *, seen: int, now_s: float) -> bool:
        """Of an answer that came now; `seen`: the newest revision of any member's answer."""
        if revision >= self._expected:
            self._expected, self._behind, self._judged_s = seen, 0, now_s
        elif now_s - self._judged_s >= self._apart_s:
            # Those that waited here while this process was busy come together, and count once.
            self._behind += 1
            self._judged_s = now_s
        return self._behind >= ANSWERS_MAX
