"""This module has the class of windows."""

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
_LEAST_P = 1e-30  # A smaller p is near the end of float32, 1e-38.

Tensors = torch.Tensor | Sequence[torch.Tensor]
Weights = Mapping[int, float] | Iterable[int]


class Window:
    """A Window has a tensor that other ranks read, and slots in which they leave theirs.

    The values that a rank puts into another's slot are there when the call returns. The other one's
    program does nothing for them, and finds them when it calls `update`, which averages its tensor
    with its slots. Neither ever waits for what the other computes. docs/semantics.md says what may
    be relied on.

    All ranks of the group make the window together, of one shape and dtype. BlueFog has windows by
    name (`bluefog_pg.torch.win_create`).

    Thread safety: any thread may call the methods. Puts of one rank's threads take effect one at a
    time, and `free` waits for calls of other threads, which then raise. The window owns the memory
    that its tensor moves into and the slots for its sources; `free` releases the slots.

    Args:
        tensor: dense, contiguous, on the CPU or the group's accelerator (docs/gpu.md); floating,
            complex or integers. Its storage moves into memory that the others can read: tensors
            that share it go along (views, `p.data`). A numpy array that shares it does not, nor
            does an operation that is under way on it. It cannot be resized from then on, and its
            former memory stays as long. Tensors of one dtype in a list make one window: they move
            into one memory, one after the other.
        name: the window's name in its group.
        zero_init: all slots begin empty; otherwise those of the sources with this rank's values.
        neighbors: (sources, destinations), the ranks whose slots count where `update` names none,
            and those that are put to where `put` names none. None: those of the group's topology.
        on_peer_failure: "raise" PeerFailed where a call is for a rank that has died, after it has
            done its work with the others; or "drop", and count that in `sent`.
        group: the process group; None, the default one.

    Raises:
        ValueError: the name is taken; another on_peer_failure; a tensor that no window can have;
            ranks give other shapes, types or names (on every rank).
        TypeError: `tensor` is no tensor; `name` is no str.
        RuntimeError: another rank could not make its part.
        NotRunning: there is no default process group.

    Example:
        >>> x = torch.full((2,), float(bf.rank()))
        >>> window = bf.Window(x, "x", zero_init=True)
        >>> window.put()
        >>> window.fence()  # Only an example that shows values needs a fence.
        >>> mean = (bf.rank() + sum(window.sources)) / 3
        >>> torch.allclose(window.update(), torch.full((2,), mean))
        True
        >>> window.free()
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
        """Set the neighbors and weights of calls that name none."""
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
        """Return the tensor; for a list, all of it in one dimension.

        Example:
            >>> parts = [torch.zeros(2, 2), torch.ones(1)]
            >>> window = bf.Window(parts, "parts")
            >>> window.tensor.tolist()
            [0.0, 0.0, 0.0, 0.0, 1.0]
            >>> window.free()
        """
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
            tensor: has the window's shape and dtype; None, its own tensor.
            self_weight: scales the tensor afterwards; None, the tensor stays as it is.
            dst_weights: {rank j: w_j}, any ranks of the group, or a list of them, which weigh 1.
                None: the window's destinations.
            require_mutex: put while nobody else holds the slot's mutex (`mutex`).
            async_op: return an object whose `wait()` returns when the tensor is in its place. Ranks
                on other hosts get it meanwhile, from a copy; so do all ranks where the tensor is on
                an accelerator. Where a mutex is required, or this thread holds one of that rank and
                this, it has ended already.

        Returns:
            None; with async_op the object to wait for.

        Raises:
            ValueError: another shape or dtype than the window's; ranks that are none; a weight that
                is no finite number; the window was freed.
            PeerFailed: those ranks have died; the others have got it. (With async_op, in wait().)
            CollectiveTimeout: somebody held the mutex for longer than the group's timeout, or a
                rank on another host has not answered for so long.

        Example:
            >>> window = bf.Window(torch.zeros(2), "w", zero_init=True)
            >>> window.put(torch.ones(2), dst_weights={(bf.rank() + 1) % 4: 0.5})
            >>> window.fence()
            >>> window.read((bf.rank() - 1) % 4).tolist()
            [0.5, 0.5]
            >>> window.free()
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
        """Add to this rank's slots in others: slot <- slot + w_j tensor.

        Args:
            tensor, self_weight, dst_weights, require_mutex, async_op: as in `put`.

        Returns:
            None; with async_op the object to wait for.

        Raises:
            The errors of `put`.

        Example:
            >>> window = bf.Window(torch.ones(2), "w", zero_init=True)
            >>> for _ in range(3):
            ...     window.accumulate()
            >>> window.fence()
            >>> window.read(window.sources[0]).tolist()
            [3.0, 3.0]
            >>> window.free()
        """
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

        Returns:
            None; with async_op the object to wait for.

        Raises:
            The errors of `put`.

        Example:
            >>> window = bf.Window(torch.full((2,), float(bf.rank())), "w", zero_init=True)
            >>> window.get(src_weights={(bf.rank() + 2) % 4: 10.0})
            >>> window.read((bf.rank() + 2) % 4).tolist() == [(bf.rank() + 2) % 4 * 10] * 2
            True
            >>> window.free()
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

        The call is local. The versions of those slots are 0 then. With `reset` it waits for sources
        that have sent nothing new, until 5 ms after this rank's last such call: a rank whose steps
        take longer never waits (docs/semantics.md).

        Args:
            self_weight, neighbor_weights: both, or none: those of the group's weighted topology
                when the window was made, or 1 / (number of sources + 1).
            reset: empty the slots that were read.
            clone: write into a new tensor; the window's stays (p does not: it belongs to the
                result).
            require_mutex: update while nobody else holds the mutexes of these slots.

        Returns:
            The window's tensor, or the new one; for a list, all of it in one dimension.

        Raises:
            ValueError: one of the two weights alone; ranks that are none.
            CollectiveTimeout: as in `put`.

        Example:
            >>> others = [rank for rank in range(4) if rank != bf.rank()]
            >>> x = torch.full((2,), float(bf.rank()))
            >>> window = bf.Window(x, "w", neighbors=(others, others))
            >>> window.put()
            >>> window.fence()
            >>> quarters = dict.fromkeys(others, 0.25)
            >>> window.update(self_weight=0.25, neighbor_weights=quarters).tolist()
            [1.5, 1.5]
            >>> window.free()
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
                "%s: p is %.1e, and the tensor is as small: this rank gives its mass away, and "
                "gets hardly any back. Do its in-neighbors put into the window as often?",
                self.checker("win_update").where, window.p,
            )  # fmt: skip
        return result

    def update_then_collect(self, *, require_mutex: bool = True) -> torch.Tensor:
        """Add what others have left, once: tensor <- tensor + sum_j slot_j, and the slots are 0.

        Args:
            require_mutex: update while nobody else holds the mutexes of these slots.

        Returns:
            The window's tensor; for a list, all of it in one dimension.

        Raises:
            ValueError: the window was freed.
            CollectiveTimeout: as in `put`.

        Example:
            >>> window = bf.Window(torch.ones(2), "w", zero_init=True)
            >>> window.put()
            >>> window.fence()
            >>> window.update_then_collect().tolist(), window.read(window.sources[0]).tolist()
            ([3.0, 3.0], [0.0, 0.0])
            >>> window.free()
        """
        everything = dict.fromkeys(self.sources, 1.0)
        return self.update(
            self_weight=1.0, neighbor_weights=everything, reset=True, require_mutex=require_mutex
        )

    def await_news(self) -> None:
        """Wait until a source has sent something new, or 5 ms have passed since the last such wait.

        This is for loops whose steps take less than that: an average of what was sent long ago
        would be of no use to them. It returns at once if all sources are dead, or if this thread
        holds their mutexes.

        Raises:
            ValueError: the window was freed.

        Example:
            >>> window = bf.Window(torch.ones(2), "w", zero_init=True)
            >>> window.put()
            >>> window.await_news()
            >>> window.fence()
            >>> window.free()
        """
        self._opened("win_update").await_news(self.sources)

    def read(self, rank: int, *, require_mutex: bool = False) -> torch.Tensor:
        """Return a copy of one slot, which stays as it is, with its version.

        Args:
            rank: the slot's writer.
            require_mutex: read while nobody else holds the slot's mutex.

        Raises:
            ValueError: `rank` is none; the window was freed.
            CollectiveTimeout: as in `put`.

        Example:
            >>> window = bf.Window(torch.zeros(2), "w")
            >>> window.put(torch.full((2,), float(bf.rank())))
            >>> window.fence()
            >>> source = window.sources[0]
            >>> window.read(source).tolist() == [source] * 2, window.versions()[source]
            (True, 1)
            >>> window.free()
        """
        window, check = self._opened("win_read_neighbor"), self.checker("win_read_neighbor")
        (writer,) = check.ranks("rank", [rank])
        return window.read(writer, require_mutex)

    def mutex(
        self, *, for_self: bool = False, ranks: Iterable[int] | None = None
    ) -> contextlib.AbstractContextManager[None]:
        """Exclude others from slots for a block, as far as they ask for the mutex, too.

        Each slot has one, for its writer and its owner. A dead rank has nothing to be excluded
        from. Two ranks that hold one each and ask for the other's both wait until the timeout: name
        all in one call, and use operations in the block that do not ask for more.

        Args:
            for_self: the mutexes of this rank's own slots; otherwise of its slots in others.
            ranks: of these ranks; None, of the sources or the destinations.

        Raises:
            RuntimeError: this thread holds one of them already.
            CollectiveTimeout: somebody else held one for longer than the group's timeout. (A rank
                that dies lets go.)

        Example:
            >>> window = bf.Window(torch.ones(2), "w")
            >>> with window.mutex(for_self=True):
            ...     before = window.read(window.sources[0])
            ...     _ = window.update()
            >>> before.tolist()
            [1.0, 1.0]
            >>> window.free()
        """
        window, check = self._opened("win_mutex"), self.checker("win_mutex")
        default = self.sources if for_self else self.destinations
        named = default if ranks is None else check.ranks("ranks", ranks)
        own = self._member.rank
        edges = [(own, rank) if for_self else (rank, own) for rank in named]
        exclusion: contextlib.AbstractContextManager[None] = load().Exclusion(window, edges)
        return exclusion

    def versions(self) -> dict[int, int]:
        """Return {source: changes of its slot since this rank's last `update`}.

        Raises:
            ValueError: the window was freed.

        Example:
            >>> window = bf.Window(torch.ones(2), "w")
            >>> window.put()
            >>> window.fence()
            >>> list(window.versions().values())
            [1, 1]
            >>> _ = window.update()
            >>> list(window.versions().values())
            [0, 0]
            >>> window.free()
        """
        return {rank: state.version for rank, state in self.states().items()}

    def states(self) -> dict[int, SlotState]:
        """Return {source: the state of its slot}.

        Returns:
            Each state has `version` and `changes` (in all), `age` (seconds since the last change),
            `p`, and `has_ended`: whether the source has died or left.

        Raises:
            ValueError: the window was freed.

        Example:
            >>> window = bf.Window(torch.ones(2), "w")
            >>> window.put()
            >>> window.fence()
            >>> [(state.changes, state.has_ended) for state in window.states().values()]
            [(1, False), (1, False)]
            >>> window.free()
        """
        window = self._opened("get_win_version")
        return window.states(self.sources) if self._member.size > 1 else {}

    def sent(self) -> dict[int, SentTo]:
        """Return {rank: what this rank has written to it}.

        Returns:
            Each value has `puts` (and accumulations), their `bytes`, and the calls that were
            `dropped` because the rank was dead.

        Raises:
            ValueError: the window was freed.

        Example:
            >>> window = bf.Window(torch.ones(4), "w")
            >>> window.put()
            >>> [(sent.puts, sent.bytes, sent.dropped) for sent in window.sent().values()]
            [(1, 16, 0), (1, 16, 0)]
            >>> window.fence()
            >>> window.free()
        """
        return self._opened("window_stats").sent()

    @property
    def associated_p(self) -> float:
        """Return this rank's p, a float64: see `turn_on_win_ops_with_associated_p`.

        Example:
            >>> window = bf.Window(torch.ones(2), "w")
            >>> window.associated_p
            1.0
            >>> window.free()
        """
        return self._opened("win_associated_p").p

    def flush(self) -> None:
        """Wait until what this rank has begun has ended, well or not. The call is local.

        Raises:
            ValueError: the window was freed.

        Example:
            >>> window = bf.Window(torch.ones(2), "w")
            >>> work = window.put(async_op=True)
            >>> window.flush()
            >>> work.is_completed()
            True
            >>> window.fence()
            >>> window.free()
        """
        self._opened("win_flush").flush("win_flush")

    def fence(self) -> None:
        """Wait until what any rank has begun before is in its place. Collective.

        Raises:
            ValueError: the window was freed; other ranks fence or free another one.
            PeerFailed, CollectiveTimeout: a rank has died, or has not come.

        Example:
            >>> window = bf.Window(torch.ones(2), "w")
            >>> window.put()
            >>> window.fence()
            >>> list(window.versions().values())  # Both sources have put.
            [1, 1]
            >>> window.free()
        """
        self._opened("win_fence").flush("win_fence")
        meet(self._member, f"win_fence '{self.name}'")

    def free(self) -> None:
        """Free the window: when all ranks have called it, nobody can reach the slots any more.

        The call is collective. It waits for what is under way. The tensor stays as it is. Where a
        rank has died, or does not come, the window is freed here all the same.

        Raises:
            ValueError: the window was freed; other ranks fence or free another one: this one stays.
            PeerFailed: a rank has died (not with on_peer_failure="drop").
            CollectiveTimeout: a rank has not come; a thread of this one stays in a call.

        Example:
            >>> window = bf.Window(torch.ones(2), "w")
            >>> window.free()
            >>> window
            <Window 'w', freed>
        """
        window = self._opened("win_free")
        window.close("win_free")
        try:
            meet(self._member, f"win_free '{self.name}'")
            window.note_freed()
        except dist.DistError as error:
            if is_on_accelerator(window):  # A rank that has not come may still have it open.
                window.abandon()
                self._member.unfreed.append(window)
            self._forget()
            if not (self._drops and isinstance(error, load().PeerFailed)):
                raise
        except ValueError:
            window.reopen()
            raise
        except BaseException:  # After Ctrl-C, the others may write there until they come.
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
            self._keep(window, tensor, own, with_p)  # The other ranks have got their parts.
            raise
        self._keep(window, tensor, own, with_p)
        return work

    def _keep(self, window: TensorWindow, tensor: Tensors | None, own: float, with_p: bool) -> None:
        """Scale the part of a put tensor that stays with this rank."""
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
        """Return the checker of the arguments of a call."""
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
    """Scale a tensor in place; integers are rounded toward zero, as those that are put are."""
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.mul_(weight)
    else:
        tensor.copy_(tensor.double() * weight)
