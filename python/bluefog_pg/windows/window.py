"""Memory of this rank that others read and write while it computes."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.distributed as dist

from bluefog_pg._core.argument_checker import described
from bluefog_pg._core.group_state import member_of
from bluefog_pg._core.loader import load
from bluefog_pg.topology.group_topology import topology_of
from bluefog_pg.windows._arguments import WindowArgumentChecker
from bluefog_pg.windows._collective_create import (
    WindowSpec,
    is_on_accelerator,
    joined,
    meet,
    open_together,
)
from bluefog_pg.windows._switch import Switch

if TYPE_CHECKING:
    from bluefog_pg._C import SentTo, SlotState, TensorWindow, WindowWork

_log = logging.getLogger("bluefog_pg")
_LEAST_P = 1e-30  # float32 ends at 1e-38

Tensors = torch.Tensor | Sequence[torch.Tensor]
Weights = Mapping[int, float] | Iterable[int]


class Window:
    """A tensor of each rank that the others read, and slots in which they leave theirs.

    What a rank puts into another's slot is there when the call returns; the other one's program
    does nothing for it, and finds it when it calls `update`, which averages its tensor with its
    slots. Neither ever waits for what the other computes. docs/semantics.md says what may be relied
    on.

    Collective: all ranks of the group make the window, of one shape and type.

    Args:
        tensor: dense, contiguous, on the CPU or the group's accelerator (docs/gpu.md); floating,
            complex or integers. Its storage moves into memory that the others can read: what shares
            it goes along (views, `p.data`), but not what is none of torch's (a numpy array), nor an
            operation that is under way on it. It cannot be resized from then on, and its former
            memory stays as long. Tensors of one type in a list make one window: they move into one
            memory, one after the other.
        name: the window's, in its group.
        zero_init: all slots begin empty; otherwise those of the sources with this rank's values.
        neighbors: (sources, destinations), the ranks whose slots count where `update` names none,
            and those that are put to where `put` names none. None: those of the group's topology.
        on_peer_failure: "raise" PeerFailed where a call is for a rank that has died, after it has
            done its work with the others; or "drop", and count that in `sent`.
        group: the process group; None, the default one.

    Raises:
        ValueError: the name is taken; another on_peer_failure; a tensor that no window can have;
            ranks give other shapes, types or names (on every rank).
        TypeError: what is no tensor; a name that is no str.
        RuntimeError: another rank could not make its part.
    """

    def __init__(
        self,
        tensor: Tensors,
        name: str,
        *,
        zero_init: bool = False,
        neighbors: tuple[Iterable[int], Iterable[int]] | None = None,
        on_peer_failure: Literal["raise", "drop"] = "raise",
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self._member = member = member_of(group)
        self.name = name
        self._has_warned = False
        self._drops = on_peer_failure == "drop"

        def spec() -> WindowSpec:
            self._check_name()
            if on_peer_failure not in ("raise", "drop"):
                self.checker("win_create").fail(
                    f"on_peer_failure must be 'raise' or 'drop', not {on_peer_failure!r}"
                )
            self._settle(neighbors)
            flat = self._flattened(tensor)
            return WindowSpec(flat, flat is not tensor, self.sources, zero_init, self._drops)

        self._window: TensorWindow | None = open_together(member, name, spec)
        member.windows[name] = self

    def _check_name(self) -> None:
        name, check = self.name, self.checker("win_create")
        if not isinstance(name, str):
            raise TypeError(f"{check.where}: name must be a str, not {type(name).__name__}")
        if not _is_text(name):
            check.fail("the name has half a character (a lone surrogate)")
        if name in self._member.windows:
            check.fail("there is a window of this name; free it first")

    def _settle(self, neighbors: tuple[Iterable[int], Iterable[int]] | None) -> None:
        """The neighbours and weights of calls that name none."""
        check, near = self.checker("win_create"), topology_of(self._member).neighborhood
        given = (near.sources, near.destinations) if neighbors is None else neighbors
        if not isinstance(given, Sequence) or len(given) != 2:
            check.fail(f"neighbors must be (sources, destinations), not {given!r}")
        self.sources = sorted(check.ranks("neighbors", given[0]))
        self.destinations = sorted(check.ranks("neighbors", given[1]))
        self._from = [(rank, 1.0) for rank in self.sources]
        self._to = [(rank, 1.0) for rank in self.destinations]
        weights = (near.self_weight, near.source_weights) if neighbors is None else (None, None)
        self._own_weight, self._averaged = self._default_weights(*weights)

    def _flattened(self, given: Tensors) -> torch.Tensor:
        self._parts = None
        if isinstance(given, torch.Tensor):
            return given
        where = self.checker("win_create").where
        if not isinstance(given, Iterable):
            raise TypeError(f"{where}: expected a torch.Tensor or a list of them, not {given!r}")
        self._parts = list(given)
        return joined(self._parts, where)

    @property
    def tensor(self) -> torch.Tensor:
        """The tensor; of a list, all of it in one dimension."""
        return self._opened("win_create").tensor

    def put(
        self,
        tensor: Tensors | None = None,
        *,
        self_weight: float | None = None,
        dst_weights: Weights | None = None,
        require_mutex: bool = False,
        async_op: bool = False,
    ) -> WindowWork | None:
        """Replace this rank's slots in others by w_j tensor; then tensor <- self_weight tensor.

        Args:
            tensor: of the window's shape; None, its own.
            self_weight: None, the tensor stays as it is.
            dst_weights: {rank j: w_j}, any ranks of the group, or a list of them, which weigh 1.
                None: the window's destinations.
            require_mutex: while nobody else holds the slot's mutex (`mutex`).
            async_op: return what `wait()` waits for: it is in its place then. Ranks on other hosts
                (of a tensor on an accelerator: all) get it meanwhile, from a copy; where a mutex is
                required, or this thread holds one of that rank and this, it has ended already.

        Raises:
            ValueError: another shape or type than the window's; ranks that are none; a weight that
                is no finite number; the window was freed.
            PeerFailed: those ranks have died; the others have got it. (With async_op, in wait().)
            CollectiveTimeout: somebody held the mutex for longer than the group's timeout, or a
                rank on another host has not answered for so long.
        """
        return self._write("win_put", tensor, self_weight, dst_weights, require_mutex, async_op)

    def accumulate(
        self,
        tensor: Tensors | None = None,
        *,
        self_weight: float | None = None,
        dst_weights: Weights | None = None,
        require_mutex: bool = False,
        async_op: bool = False,
    ) -> WindowWork | None:
        """Add to this rank's slots in others: slot <- slot + w_j tensor. As `put`."""
        op = "win_accumulate"
        return self._write(op, tensor, self_weight, dst_weights, require_mutex, async_op)

    def get(
        self,
        *,
        src_weights: Weights | None = None,
        require_mutex: bool = False,
        async_op: bool = False,
    ) -> WindowWork | None:
        """Fetch other ranks' tensors, as they are now, into this rank's slots for them, times w_j.

        Args:
            src_weights: {rank j: w_j}, or a list of ranks, which weigh 1. None: the sources.
            require_mutex, async_op: as in `put`.

        Raises: as `put`.
        """
        window = self._opened("win_get")
        sources = (
            self._from
            if src_weights is None
            else self.checker("win_get").pairs("src_weights", src_weights)
        )
        return window.get(sources, require_mutex, Switch.is_on, async_op)

    def update(
        self,
        *,
        self_weight: float | None = None,
        neighbor_weights: Mapping[int, float] | None = None,
        reset: bool = False,
        clone: bool = False,
        require_mutex: bool = False,
    ) -> torch.Tensor:
        """Average with what others have left: tensor <- self_weight tensor + sum_j w_j slot_j.

        Local. The versions of those slots are 0 then. With `reset` it waits for sources that have
        sent nothing new, until 5 ms after this rank's last such call: a rank whose steps take
        longer never waits (docs/semantics.md).

        Args:
            self_weight, neighbor_weights: both, or none: those of the group's weighted topology
                when the window was made, or 1 / (number of sources + 1).
            reset: what was taken out of the slots is gone from them.
            clone: into a new tensor; the window's stays (p does not: it belongs to the result).
            require_mutex: while nobody else holds the mutexes of these slots.

        Returns:
            The window's tensor, or the new one; of a list, all of it in one dimension.

        Raises:
            ValueError: one of the two weights alone; ranks that are none.
            CollectiveTimeout: as in `put`.
        """
        window, own, sources = self._opened("win_update"), self._own_weight, self._averaged
        if self_weight is not None or neighbor_weights is not None:
            check = self.checker("win_update")
            if self_weight is None or neighbor_weights is None:
                check.fail("self_weight and neighbor_weights belong together: give both or none")
            own = check.number("self_weight", self_weight)
            sources = sorted(check.weights("neighbor_weights", neighbor_weights).items())
        result = window.update(own, sources, reset, clone, require_mutex, Switch.is_on)
        if Switch.is_on and not self._has_warned and 0 < window.p < _LEAST_P:
            self._has_warned = True
            _log.warning(
                "%s: p is %.1e, and the tensor as small: this rank gives away what it has, and "
                "gets hardly anything. Do its in-neighbors put into the window as often?",
                self.checker("win_update").where, window.p,
            )  # fmt: skip
        return result

    def update_then_collect(self, *, require_mutex: bool = True) -> torch.Tensor:
        """Add what others have left, once: tensor <- tensor + sum_j slot_j, and the slots are 0."""
        everything = dict.fromkeys(self.sources, 1.0)
        return self.update(
            self_weight=1.0, neighbor_weights=everything, reset=True, require_mutex=require_mutex
        )

    def await_news(self) -> None:
        """Wait until a source has sent something new, or 5 ms have passed since the last such wait.

        For loops whose steps take less than that, in which an average of what was sent long ago
        would be of no use. It returns at once if all sources are dead, or if this thread holds
        their mutexes.
        """
        self._opened("win_update").await_news(self.sources)

    def read(self, rank: int, *, require_mutex: bool = False) -> torch.Tensor:
        """A copy of one slot, which stays as it is, with its version."""
        window, check = self._opened("win_read_neighbor"), self.checker("win_read_neighbor")
        (writer,) = check.ranks("rank", [rank])
        return window.read(writer, require_mutex)

    def mutex(
        self, *, for_self: bool = False, ranks: Iterable[int] | None = None
    ) -> contextlib.AbstractContextManager[None]:
        """Exclude others from slots, as far as they ask for the mutex, too.

        Each slot has one, for its writer and its owner. Of a dead rank there is nothing to exclude.
        Two ranks that hold one each and ask for the other's both wait until the timeout: name all
        in one call, and use operations in the block that do not ask for more.

        Args:
            for_self: those of this rank's own slots; otherwise of its slots in others.
            ranks: of these ranks; None, of the sources or the destinations.

        Raises:
            RuntimeError: this thread holds one of them already.
            CollectiveTimeout: somebody else held one for longer than the group's timeout. (Who
                dies lets go.)
        """
        window, check = self._opened("win_mutex"), self.checker("win_mutex")
        default = self.sources if for_self else self.destinations
        named = default if ranks is None else check.ranks("ranks", ranks)
        own = self._member.rank
        edges = [(own, rank) if for_self else (rank, own) for rank in named]
        exclusion: contextlib.AbstractContextManager[None] = load().Exclusion(window, edges)
        return exclusion

    def versions(self) -> dict[int, int]:
        """{source: changes of its slot since this rank's last `update`}."""
        return {rank: state.version for rank, state in self.states().items()}

    def states(self) -> dict[int, SlotState]:
        """{source: version, changes in all, age in seconds and p of its slot; has it died?}."""
        window = self._opened("get_win_version")
        return window.states(self.sources) if self._member.size > 1 else {}

    def sent(self) -> dict[int, SentTo]:
        """{rank: puts and accumulations, their bytes, and calls dropped: it was dead by then}."""
        return self._opened("window_stats").sent()

    @property
    def associated_p(self) -> float:
        """This rank's p: see `turn_on_win_ops_with_associated_p`."""
        return self._opened("win_associated_p").p

    def flush(self) -> None:
        """Local: wait until what this rank has begun has ended, well or not.

        Raises:
            ValueError: the window was freed.
        """
        self._opened("win_flush").flush("win_flush")

    def fence(self) -> None:
        """Collective: what any rank has begun before is in its place when the call returns.

        Raises:
            ValueError: the window was freed; other ranks fence or free another one.
        """
        self._opened("win_fence").flush("win_fence")
        meet(self._member, f"win_fence '{self.name}'")

    def free(self) -> None:
        """Collective: when all have called it nobody can reach the slots any more.

        Waits for what is under way. The tensor stays as it is. Where a rank has died, or does not
        come, the window is freed here all the same.

        Raises:
            ValueError: the window was freed; other ranks fence or free another one: this one stays.
            PeerFailed: a rank has died (not with on_peer_failure="drop").
            CollectiveTimeout: a rank has not come; a thread of this one stays in a call.
        """
        window = self._opened("win_free")
        window.close("win_free")
        try:
            meet(self._member, f"win_free '{self.name}'")
            window.note_freed()
        except dist.DistError as error:
            if is_on_accelerator(window):  # who has not come may still have it open
                window.abandon()
                self._member.unfreed.append(window)
            self._forget()
            if not (self._drops and isinstance(error, load().PeerFailed)):
                raise
        except ValueError:
            window.reopen()
            raise
        except BaseException:  # Ctrl-C: the others may write there until they have come, too
            self._member.unfreed.append(window)
            self._forget()
            raise
        else:
            self._forget()

    def _forget(self) -> None:
        self._window = None
        self._member.windows.pop(self.name, None)

    def _write(
        self,
        op: str,
        tensor: Tensors | None,
        self_weight: float | None,
        dst_weights: Weights | None,
        require_mutex: bool,
        async_op: bool,
    ) -> WindowWork | None:
        window, destinations, own = self._opened(op), self._to, 1.0
        given = window.tensor if tensor is None else self._flat(op, tensor)
        if dst_weights is not None:
            destinations = self.checker(op).pairs("dst_weights", dst_weights)
        if self_weight is not None:
            own = self.checker(op).number("self_weight", self_weight)
        adds, with_p = op == "win_accumulate", Switch.is_on
        try:
            work = window.put(given, destinations, adds, require_mutex, with_p, async_op)
        except load().PeerFailed:
            self._keep(window, tensor, own, with_p)  # the others have got theirs
            raise
        self._keep(window, tensor, own, with_p)
        return work

    def _keep(
        self, window: TensorWindow, tensor: Tensors | None, own: float, with_p: bool
    ) -> None:
        """What stays with this rank of a tensor that it has put."""
        if own == 1.0:
            return
        with torch.no_grad():
            for part in self._parts_of(tensor):
                _scale(part, own)
        if with_p:
            window.multiply_p(own)

    def _parts_of(self, tensor: Tensors | None) -> Sequence[torch.Tensor]:
        if tensor is None:
            return [self.tensor]
        return [tensor] if isinstance(tensor, torch.Tensor) else tensor

    def _flat(self, op: str, tensor: Any) -> torch.Tensor:
        if isinstance(tensor, torch.Tensor):
            return tensor
        check = self.checker(op)
        if self._parts is None:
            check.fail(f"expected a torch.Tensor, got {type(tensor).__name__}")
        parts: list[torch.Tensor] = list(tensor)
        if [part.shape for part in parts] != [part.shape for part in self._parts]:
            check.fail("the list's tensors must have the shapes of the window's")
        if all(a is b for a, b in zip(parts, self._parts, strict=True)):
            return self.tensor
        return torch.cat([part.detach().reshape(-1) for part in parts])

    def _default_weights(
        self, own: float | None, of_sources: Mapping[int, float] | None
    ) -> tuple[float, list[tuple[int, float]]]:
        if own is not None and of_sources is not None:
            return own, sorted(of_sources.items())
        alike = 1.0 / (len(self.sources) + 1)
        return alike, [(rank, alike) for rank in self.sources]

    def _opened(self, op: str) -> TensorWindow:
        if self._window is None:
            self.checker(op).fail("the window was freed")
        return self._window

    def checker(self, op: str) -> WindowArgumentChecker:
        """What checks the arguments of a call."""
        return WindowArgumentChecker(self._member, op, self.name)

    def __repr__(self) -> str:
        if self._window is None:
            return f"<Window '{self.name}', freed>"
        of = described(self._window.tensor)
        return f"<Window '{self.name}' of {of} from {self.sources} to {self.destinations}>"


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _scale(tensor: torch.Tensor, weight: float) -> None:
    """In place; integers are rounded towards zero, as what is put is."""
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.mul_(weight)
    else:
        tensor.copy_(tensor.double() * weight)
