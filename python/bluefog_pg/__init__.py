"""This package is a torch.distributed backend with averaging over any weighted digraph."""

from typing import Any

from bluefog_pg import _autoload


# Every `import torch` of this environment imports this package (see _autoload), so what a name
# needs, and the list of names itself, is imported when a name is first used.
def __getattr__(name: str) -> Any:
    from bluefog_pg._core.lazy import find, is_deprecated

    value = find(name)
    if not is_deprecated(name):
        globals()[name] = value
    return value


def __dir__() -> list[str]:
    from bluefog_pg._core.lazy import find

    return sorted({*globals(), *find("__all__"), "__version__"})


_autoload.register()
