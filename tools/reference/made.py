"""Every page that is made of the code, and every figure, by its path in the repository."""

from __future__ import annotations

from typing import Dict

from tools.reference import figures, pages, surface, tables


def made() -> Dict[str, str]:
    """The texts. Needs torch and TensorFlow."""
    found = {f"{pages.FOLDER}/{pages.file_of(one)}": pages.page(one) for one in surface.MODULES}
    found[f"{pages.FOLDER}/README.md"] = pages.index()
    found[f"{pages.FOLDER}/horovod.md"] = tables.horovod_page()
    found[f"{pages.FOLDER}/torch_distributed.md"] = tables.torch_page()
    found.update(figures.figures())
    return found
