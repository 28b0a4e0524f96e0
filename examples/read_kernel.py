"""From a node of the model to the source of the kernel that computes it.

python examples/read_kernel.py [NODE]
"""

from __future__ import annotations

import sys

from small_network import small_network

from graphwright.compilation import build
from graphwright.compiler.options import CompileOptions
from graphwright.runtime.artifact import ArtifactFile


def main() -> None:
    node = sys.argv[1] if len(sys.argv) > 1 else "relu"
    artifact = ArtifactFile(build(small_network(), CompileOptions.make()).artifact.to_bytes())
    variant = artifact.manifest.variants[0]
    for number, launch in enumerate(variant.launches):
        kernel = variant.kernels[launch.kernel]
        print(f"launch {number}: {kernel.name} computes {', '.join(launch.origins)}")
    for launch in variant.launches:
        if node in launch.origins:
            kernel = variant.kernels[launch.kernel]
            print(f"\n{node} is computed here:\n")
            print(artifact.read(kernel.source).decode())
            return
    sys.exit(f"error: no kernel computes a node called {node!r}")


if __name__ == "__main__":
    main()
