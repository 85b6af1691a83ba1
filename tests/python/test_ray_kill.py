"""Replicas of a Ray Serve application are killed while they answer; see serve_kill.py, of which this is a short run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

for package in ("ray.cluster_utils", "ray.serve", "fastapi", "uvicorn", "prometheus_client", "openai"):
    pytest.importorskip(package, reason=f"sardonyx.ray and its tests need the package {package}")


@pytest.mark.slow  # starts a cluster
def test_no_request_is_lost():
    script = Path(__file__).with_name("serve_kill.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, str(script), "2", "4"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0 and "2 replicas killed" in done.stdout, done.stdout + done.stderr
