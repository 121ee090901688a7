#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write the software bill of materials of a build as CycloneDX JSON.

    sbom.py OUTPUT VERSION [NAME=VERSION]...

A NAME is one of COMPONENTS: the others' code that the build contains or needs."""

import json
import sys
from typing import Any

# Name: licence, how the build uses it, and which of its files do.
COMPONENTS = {
    "jemalloc": ("BSD-2-Clause", "compiled in, patched",
                 "libgpualloc, libgpualloc-malloc, libgpualloc-cuda, gpualloc"),
    "lz4": ("BSD-2-Clause", "linked statically", "libgpualloc-cuda"),
    "zstd": ("BSD-3-Clause", "linked statically", "libgpualloc-cuda"),
    "jansson": ("MIT", "linked dynamically", "gpualloc"),
    "clang": ("Apache-2.0 WITH LLVM-exception", "linked dynamically", "gpualloc-rewrite"),
    "cuda-nvcc": ("LicenseRef-NVIDIA-CUDA", "compiles the device code",
                  "libgpualloc, libgpualloc-cuda, libgpualloc-kernel"),
}


def licence(name: str) -> dict[str, Any]:
    if " " in name:
        return {"expression": name}
    known = "name" if name.startswith("LicenseRef-") else "id"
    return {"license": {known: name}}


def component(name: str, version: str) -> dict[str, Any]:
    terms, use, files = COMPONENTS[name]
    made: dict[str, Any] = {
        "type": "application" if name == "cuda-nvcc" else "library", "bom-ref": name,
        "name": name, "version": version, "purl": f"pkg:generic/{name}@{version}",
        "licenses": [licence(terms)],
        "properties": [{"name": "gpualloc:use", "value": use},
                       {"name": "gpualloc:files", "value": files}]}
    if name == "cuda-nvcc":
        made["scope"] = "excluded"
    if name == "jemalloc":
        made["pedigree"] = {"patches": [{"type": "unofficial"}],
                            "notes": "scripts/jemalloc.patch and scripts/build-jemalloc"}
    return made


def bill(version: str, parts: dict[str, str]) -> dict[str, Any]:
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {
            "type": "library", "bom-ref": "gpualloc", "name": "gpualloc", "version": version,
            "purl": f"pkg:generic/gpualloc@{version}", "licenses": [licence("MIT")]}},
        "components": [component(*part) for part in sorted(parts.items())],
        "dependencies": [{"ref": "gpualloc", "dependsOn": sorted(parts)}]}


def main() -> None:
    output, version, *given = sys.argv[1:]
    parts = dict(part.split("=", 1) for part in given)
    unknown = sorted(set(parts) - set(COMPONENTS))
    if unknown:
        sys.exit(f"sbom.py: unknown component \"{unknown[0]}\"; known: {', '.join(COMPONENTS)}")
    with open(output, "w", encoding="utf-8") as file:
        json.dump(bill(version, parts), file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
