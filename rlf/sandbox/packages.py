"""Which files of site-packages a sandbox shows: those of the allowed distributions and of what they require."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from rlf.core.errors import RlfError


@dataclass(frozen=True, slots=True)
class Packages:
    """Packages that calls may import beside the standard library."""

    entries: tuple[Path, ...]
    """Top-level files and folders of site-packages."""
    imports: tuple[str, ...]
    """Modules that are imported once, before the first call."""


def find_packages(names: Sequence[str]) -> Packages:
    """Looks allowed distributions up in this environment. Raises RlfError for one that is not installed."""
    from packaging.requirements import Requirement

    found: dict[str, Distribution] = {}
    wanted = [(name, True) for name in names]
    imports: list[str] = []
    for name, asked_for in wanted:
        if _normalize_name(name) in found:
            continue
        package = _find_distribution(name)
        found[_normalize_name(name)] = package
        if asked_for:
            imports.extend(_list_modules(package))
        required = [Requirement(text) for text in package.requires or ()]
        wanted += [(one.name, False) for one in required if one.marker is None or one.marker.evaluate({"extra": ""})]
    entries = {entry for package in found.values() for entry in _list_entries(package)}
    return Packages(tuple(sorted(entries)), tuple(imports))


def _find_distribution(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError as fault:
        raise RlfError(f"sandbox: package {name!r} is not installed; `pip install {name}`, or leave it out") from fault


def _normalize_name(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _list_entries(package: Distribution) -> set[Path]:
    """A package's files in site-packages; scripts and data outside of site-packages are left out."""
    tops = {file.parts[0] for file in package.files or () if file.parts[0] not in ("..", "__pycache__")}
    paths = {Path(str(package.locate_file(top))) for top in tops}
    return {path for path in paths if path.exists()}


def _list_modules(package: Distribution) -> list[str]:
    own = _normalize_name(package.name).replace("-", "_")
    return sorted(
        entry.stem
        for entry in _list_entries(package)
        if (entry / "__init__.py").is_file() or (entry.suffix == ".py" and entry.stem == own)
    )
