"""What Spark says by itself: `iceberg_export/log4j2.properties` names loggers, and Spark must have them."""

import re
from pathlib import Path
from zipfile import ZipFile

import pyspark
import pytest

import iceberg_export

PROPERTIES = Path(iceberg_export.__file__).parent / "log4j2.properties"
NAMED = re.findall(r"^logger\.\w+\.name = (\S+)$", PROPERTIES.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def classes() -> set[str]:
    """All of Spark's own."""
    found: set[str] = set()
    for jar in (Path(pyspark.__file__).parent / "jars").glob("spark-*.jar"):
        with ZipFile(jar) as opened:
            found |= {name.removesuffix(".class").replace("/", ".") for name in opened.namelist()}
    return found


@pytest.mark.parametrize("name", NAMED)
def test_a_logger_that_is_set_is_one_of_sparks_classes(name: str, classes: set[str]) -> None:
    """log4j takes any name, and the lines of a class that was renamed would be back."""
    assert name in classes
