"""Model folders as files to offer for download: an archive each, always of the same bytes, and their hashes."""

import gzip
import hashlib
import os
import tarfile
from pathlib import Path

from training.publish import list_folder
from training.run_folder import write_bytes


SUMS = "SHA256SUMS"


def release(models: dict[str, Path], output_dir: Path) -> dict[str, str]:
    """Write `NAME.tar.gz` for each model, and `SHA256SUMS`, which `sha256sum -c` reads.

    An archive holds a folder `NAME` with the files that `publish` would upload, and no others. Its bytes depend on
    theirs alone.

    Args:
        models: The folder of each name.
        output_dir: Made if need be; what it holds of these names is replaced.

    Returns:
        The SHA-256 of each archive, by the name of its file.
    """
    output_dir.mkdir(parents=True, exist_ok=True)
    sums = {f"{name}.tar.gz": _archive(name, folder, output_dir / f"{name}.tar.gz") for name, folder in models.items()}
    write_bytes(output_dir / SUMS, "".join(f"{digest}  {name}\n" for name, digest in sums.items()).encode("utf-8"))
    return sums


def _archive(name: str, folder: Path, path: Path) -> str:
    """Write the archive of a folder; its SHA-256."""
    published, left_out = list_folder(folder)
    for other in left_out:
        print(f"left out of {path.name}: {other if other.isprintable() else ascii(other)}")
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # The header of gzip would hold the time and the name.
        with (
            scratch.open("wb") as file,
            gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for each in published:
                with (folder / each).open("rb") as content:
                    entry = tarfile.TarInfo(f"{name}/{each}")  # of no owner, of 1970, readable by all
                    entry.size = os.fstat(content.fileno()).st_size
                    archive.addfile(entry, content)
        with scratch.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)
    return digest
