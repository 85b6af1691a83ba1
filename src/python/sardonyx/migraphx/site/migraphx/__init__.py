"""MIGraphX's module under its own name: sardonyx.migraphx."""

import sys

import sardonyx.migraphx
from sardonyx.migraphx import *  # noqa: F403

__version__ = sardonyx.migraphx.__version__
sys.modules[__name__] = sardonyx.migraphx  # one module under both names
