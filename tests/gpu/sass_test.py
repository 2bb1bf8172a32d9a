# SPDX-License-Identifier: Apache-2.0
"""Whether a library's device code has an instruction, in at least so many kernels.

    sass_test.py LIBRARY INSTRUCTION NUM_KERNELS

Exits 77, which ctest shows as skipped, where cuobjdump and nvdisasm are not on the path (packages nvidia-cuda-cuobjdump
and nvidia-cuda-nvdisasm of the Python index have them).
"""

import re
import shutil
import subprocess
import sys

SKIPPED = 77


def kernels_with(sass, instruction):
    """Names of the functions of a `cuobjdump -sass` listing that have the instruction."""
    found = set()
    name = ""
    for line in sass.splitlines():
        function = re.match(r"\s*Function : (\S+)", line)
        if function:
            name = function.group(1)
        elif re.search(rf"\b{instruction}\b", line):
            found.add(name)
    return found


def main():
    library, instruction, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
    for tool in ("cuobjdump", "nvdisasm"):
        if shutil.which(tool) is None:
            print(f"skipped: no {tool} on the path")
            return SKIPPED
    sass = subprocess.run(["cuobjdump", "-sass", library], check=True, capture_output=True, text=True).stdout
    found = kernels_with(sass, instruction)
    print(f"{instruction} in {len(found)} kernels, want {wanted}")
    return 0 if len(found) >= wanted else 1


if __name__ == "__main__":
    sys.exit(main())
