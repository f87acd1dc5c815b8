"""C++ with the CUDA runtime linked statically (nvcc -cudart static)"""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import evidence

nvcc = shutil.which("nvcc") or next(map(str, Path("/usr/local").glob("cuda*/bin/nvcc")), None)
if nvcc is None:
    evidence.skip("no nvcc")
source = Path(__file__).with_suffix(".cu")
with tempfile.TemporaryDirectory(prefix="coverage-nvcc-") as folder:
    program = Path(folder) / "static_cudart"
    subprocess.run([nvcc, "-cudart", "static", "-arch=native", "-o", program, source], check=True)
    output = subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout
results = dict(line.split() for line in output.splitlines())
versions = {"cudart": results.pop("runtime")}
print(evidence.MARK + json.dumps({"digests": results, "versions": versions}), flush=True)
