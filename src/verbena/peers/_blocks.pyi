from collections.abc import Callable
from types import TracebackType
from typing import Generic, Protocol, TypeVar

class Opened(Protocol):
    is_left: bool

_T = TypeVar("_T")
_O = TypeVar("_O", bound=Opened)

class Block(Generic[_T]):
    """A ``with`` block that ``begin()`` begins and ``end(opened)`` ends.

    ``opened()`` makes what stands for it in ``blocks``, a dict, from its beginning to its end:
    ``is_left`` is set there as it is left, whatever happens then. ``drop(opened)`` ends it where
    the program has dropped it.
    """

    def __init__(
        self,
        begin: Callable[[], _T],
        opened: Callable[[], _O],
        end: Callable[[_O], object],
        drop: Callable[[_O], object],
        blocks: dict[_O, None],
    ) -> None: ...
    def __enter__(self) -> _T: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def __del__(self) -> None: ...
