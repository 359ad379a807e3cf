"""Makes the browser code that others wrote: installs it as the lock file says, bundles it, and lists the result.

`make vendor` runs it, which needs npm. The result is committed, so that an install of rlf builds nothing.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TARGET = HERE.parent / "static" / "vendor"
_COPIED = {
    "htmx.js": "htmx.org/dist/htmx.min.js",
    "uplot.js": "uplot/dist/uPlot.esm.js",
    "uplot.css": "uplot/dist/uPlot.min.css",
}
_BUNDLED = {"codemirror.js": "codemirror.mjs"}


def build() -> None:
    """Writes the vendored files, their licences and the manifest with versions and hashes."""
    with tempfile.TemporaryDirectory() as folder:
        for path in (*HERE.glob("package*.json"), *HERE.glob("*.mjs")):
            shutil.copy(path, folder)
        place, modules = Path(folder), Path(folder) / "node_modules"
        subprocess.run(
            ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"], cwd=place, check=True, timeout=300
        )
        esbuild: list[Path | str] = [
            modules / ".bin" / "esbuild",
            "--minify",
            "--legal-comments=none",
            "--target=es2022",
        ]
        for name, source in _BUNDLED.items():
            command: list[Path | str] = [*esbuild, source, "--bundle", "--format=esm", f"--outfile={TARGET / name}"]
            subprocess.run(command, cwd=place, check=True, timeout=60)
        for name, source in _COPIED.items():
            if name.endswith(".js") and not source.endswith(".min.js"):
                subprocess.run([*esbuild, modules / source, f"--outfile={TARGET / name}"], check=True, timeout=60)
            else:
                shutil.copy(modules / source, TARGET / name)
        packages = _packages(place)
        _write_licences(modules, packages)
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(TARGET.glob("*.[cj]s*"))}
    files.pop("manifest.json", None)
    manifest = {"files": files, "packages": packages}
    (TARGET / "manifest.json").write_text(f"{json.dumps(manifest, indent=2)}\n", encoding="utf-8")


def _packages(place: Path) -> dict[str, Any]:
    """Version and licence of each package that is in a vendored file: all but those that only build."""
    locked = json.loads((place / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    named = {path.removeprefix("node_modules/"): facts for path, facts in locked.items() if path}
    return {
        name: {"version": facts["version"], "license": facts["license"]}
        for name, facts in sorted(named.items())
        if "esbuild" not in name
    }


def _write_licences(modules: Path, packages: dict[str, Any]) -> None:
    parts = [
        f"{name} {facts['version']}\n\n{(modules / name / 'LICENSE').read_text(encoding='utf-8').strip()}\n"
        for name, facts in packages.items()
    ]
    (TARGET / "LICENSES.txt").write_text(f"\n{'=' * 80}\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    build()
