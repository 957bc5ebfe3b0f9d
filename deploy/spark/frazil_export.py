"""The exporter as an application for `spark-submit`, which takes a file and no module:

    spark-submit --master … --py-files frazil-0.1.0-py3-none-any.whl \\
        frazil_export.py run --interval 5m --agent http://agent:9094 …

The wheel carries our code; what it needs (`pip install 'frazil[export]'` lists it) has to be on the
machines of driver and executors.
"""

import sys

from iceberg_export.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
