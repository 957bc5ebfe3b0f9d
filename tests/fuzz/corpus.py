"""The inputs that were wrong once, as files: `corpus/<target>/<what was wrong>-<digest>`."""

import hashlib
import re
from pathlib import Path

FOLDER = Path(__file__).parent / "corpus"


def files_of(target: str) -> list[Path]:
    return sorted((FOLDER / target).glob("*"))


def keep(target: str, sign: str, data: bytes, *, folder: Path = FOLDER) -> Path:
    """The file of this input; written once."""
    name = re.sub(r"[^a-z0-9]+", "-", sign.lower()).strip("-")[:60].strip("-")
    file = folder / target / f"{name}-{hashlib.sha256(data).hexdigest()[:8]}"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return file
