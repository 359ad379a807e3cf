"""An exported model on the Hugging Face Hub, or on a server that speaks its protocol (`HF_ENDPOINT`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlf.core.errors import RlfError, RunError, first_line


@dataclass(frozen=True, slots=True)
class Pushed:
    """A model that was uploaded, or would be."""

    repo: str
    url: str
    files: dict[str, int]
    """Sizes in bytes, by name."""
    dry_run: bool
    """Whether nothing was sent."""


def push_folder(folder: Path, repo: str, *, private: bool = False, dry_run: bool = False) -> Pushed:
    """Uploads an exported folder as a model's repository, which is made where there is none.

    Args:
        repo: `OWNER/NAME`.
        dry_run: whether nothing is sent, so that only what would be is returned.

    Raises:
        RlfError: the repository's name cannot be one.
        RunError: the Hub refuses, or cannot be reached; the folder stays.
    """
    from httpx import HTTPError
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # its list of names lacks it

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise RlfError(f"--push: got {repo!r}: {first_line(error)} Write OWNER/NAME.") from error
    api = HfApi(endpoint=constants.ENDPOINT)
    files = {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()}
    url = f"{api.endpoint}/{repo}"
    if dry_run:
        return Pushed(repo, url, files, dry_run=True)
    try:
        api.create_repo(repo, private=private, exist_ok=True)
        api.upload_folder(repo_id=repo, folder_path=folder, commit_message=f"Model exported by rlf: {folder.name}")
    except (HfHubHTTPError, HTTPError, OSError) as error:
        raise RunError(
            f"--push {repo}: {first_line(error)} The model is in {folder}: log in with `hf auth login`, or set "
            f"HF_TOKEN, and upload it with `hf upload {repo} {folder}`."
        ) from error
    return Pushed(repo, url, files, dry_run=False)
