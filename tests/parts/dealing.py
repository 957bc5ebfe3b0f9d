"""Deals files of tests out to processes side by side: a process goes on in the folder that it is in.

Tests of a folder share servers (agents, Kafka, a JVM), which each process starts for itself. So a
process takes, of the files that are left, the first of a folder that it has been in; else of one
that nobody has been in; else of any. The order of files is the caller's: the longest first.
"""

from collections.abc import Collection, Iterable

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


class FolderScheduling(LoadFileScheduling):
    """Of pytest-xdist: its `--dist loadfile`, but for the order."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        own = folders(self.assigned_work[node])
        taken = folders(file for files in self.assigned_work.values() for file in files)
        self.workqueue.move_to_end(next_file(self.workqueue, own=own, taken=taken), last=False)
        super()._assign_work_unit(node)


def next_file(left: Iterable[str], *, own: Collection[str], taken: Collection[str]) -> str:
    """What a process takes that has been in `own` folders, while somebody has been in `taken`."""
    of_own, of_nobody, of_others = [], [], []
    for file in left:
        folder = folder_of(file)
        group = of_own if folder in own else of_others if folder in taken else of_nobody
        group.append(file)
    return (of_own or of_nobody or of_others)[0]


def folders(files: Iterable[str]) -> set[str]:
    return {folder_of(file) for file in files}


def folder_of(file: str) -> str:
    """`tests/clients` of tests/clients/test_java.py; those below it are one with it."""
    return "/".join(file.split("/")[:2])
