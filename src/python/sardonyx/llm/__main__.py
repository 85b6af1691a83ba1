"""python -m sardonyx.llm: the commands generate and convert-gguf."""

import sys

from .command import main

sys.exit(main())
