"""Writes the pages of the guide that are made of the code. Started by tools/pages."""

from __future__ import annotations

import pathlib
import sys

from tools.reference.made import made

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def main() -> int:
    """Names each page that it changes; leaves no page that is not made any more."""
    pages = made()
    folders = {(_ROOT / path).parent for path in pages if "/api/" in path}
    for folder in folders:
        folder.mkdir(exist_ok=True)
        for old in folder.glob("*.md"):
            if old.relative_to(_ROOT).as_posix() not in pages:
                old.unlink()
                print(f"removed {old.relative_to(_ROOT)}")
    for path, text in pages.items():
        file = _ROOT / path
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
