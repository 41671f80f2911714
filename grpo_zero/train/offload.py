"""Gradients and weights on their way between the device and main memory, while both sides go on computing.

A gradient leaves the device as soon as backward has finished it, and adds up over micro-batches in float32 on the host: the
device holds no more gradients than are on their way, and those of bf16 weights lose nothing in adding up. All copies go through
a few staging buffers, so page-locked memory is bounded too. Where the device is the CPU the same code runs without streams.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from grpo_zero.train.moments import parts

NUM_BUFFERS = 4
"""One on its way to the host, one worked on there, two on their way back."""
NUM_IN_FLIGHT = 4
"""Gradients that may wait on the device for their copy; then backward waits. About a layer's, beside a vocabulary head's."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A part of a parameter on its way to the host or there."""

    buffer: Tensor
    """uint8, a whole staging buffer."""
    values: Tensor
    """Its beginning, in the dtype and length of the part."""
    arrival: torch.cuda.Event | None
    """None without streams: arrived."""

    def wait(self) -> Tensor:
        """The values, once they are there."""
        if self.arrival is not None:
            self.arrival.synchronize()
        return self.values


class Staging:
    """A ring of buffers in main memory, page-locked where ``device`` is a GPU, and the stream that copies from and to them.

    Args:
        chunk: most weights of one copy.

    Used by one thread at a time.
    """

    def __init__(self, device: torch.device, chunk: int) -> None:
        self.device, self.chunk = device, chunk
        is_cuda = device.type == "cuda"
        self.stream = torch.cuda.Stream(device) if is_cuda else None
        self.buffers = [torch.empty(4 * chunk, dtype=torch.uint8, pin_memory=is_cuda) for _ in range(NUM_BUFFERS)]
        self.free: deque[tuple[Tensor, torch.cuda.Event | None]] = deque((buffer, None) for buffer in self.buffers)
        """Buffers, oldest first, each with the end of the copy that still reads it."""

    def mark(self) -> torch.cuda.Event | None:
        """The point that this thread's kernels have reached on the device, for ``downloads``."""
        if self.stream is None:
            return None
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.device))
        return event

    def downloads(self, sources: Iterable[Tensor], ready: torch.cuda.Event | None) -> Iterator[Staged]:
        """Flat tensors of the device one by one, the next always on its way; they are copied as they are after ``ready``.

        Each has to be given to ``upload`` or ``release`` before the next is asked for.
        """
        if self.stream is not None and ready is not None:
            self.stream.wait_event(ready)
        ahead: Staged | None = None
        for source in sources:
            following = self._download(source)
            if ahead is not None:
                yield ahead
            ahead = following
        if ahead is not None:
            yield ahead

    def upload(self, staged: Staged, target: Tensor) -> None:
        """Start to copy the values, changed by now, to flat ``target``; the buffer is free when they are there."""
        self.free.append((staged.buffer, self._copy(target, staged.values)))

    def release(self, staged: Staged) -> None:
        """The values are not needed any more."""
        self.free.append((staged.buffer, None))

    def finish(self) -> None:
        """Wait until every upload has arrived."""
        if self.stream is not None:
            self.stream.synchronize()

    def reset(self) -> None:
        """All buffers are free again, also those of copies that an error broke off."""
        self.finish()
        self.free = deque((buffer, None) for buffer in self.buffers)

    def _download(self, source: Tensor) -> Staged:
        buffer, reader = self.free.popleft()
        if reader is not None:
            reader.synchronize()
        values = buffer.view(source.dtype)[: source.numel()]
        return Staged(buffer, values, self._copy(values, source))

    def _copy(self, target: Tensor, source: Tensor) -> torch.cuda.Event | None:
        if self.stream is None:
            target.copy_(source)
            return None
        with torch.cuda.stream(self.stream):
            target.copy_(source, non_blocking=True)
            copied = torch.cuda.Event(blocking=True)  # who waits for it sleeps
            copied.record(self.stream)
        return copied


class HostGradients:
    """The gradients of ``parameters``, flat, float32, in main memory.

    Between ``begin`` and ``end`` every backward, with ``gather`` after it, adds to them and leaves no ``.grad`` behind; outside,
    parameters are as always.
    """

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter], staging: Staging) -> None:
        self.parameters, self.staging = parameters, staging
        self.sums = {name: torch.empty(p.numel(), dtype=torch.float32) for name, p in parameters.items()}
        self.arrived: set[str] = set()
        self.hooks: list[RemovableHandle] = []
        self.host = ThreadPoolExecutor(1)  # one thread, so that sums are taken in the order of backward
        self.in_flight: deque[Future[None]] = deque()

    def begin(self) -> None:
        """Forget what there is and catch what backward makes from here on."""
        self.end()
        self.forget()
        self.hooks = [
            parameter.register_post_accumulate_grad_hook(partial(self._send, name))
            for name, parameter in self.parameters.items()
        ]

    def gather(self) -> None:
        """Send the gradients that no hook saw: those written to ``.grad`` directly, whole only when backward is over."""
        for name, parameter in self.parameters.items():
            if parameter.grad is not None:
                self._send(name, parameter)

    def end(self) -> None:
        """Catch no more, and wait until all that was caught is added up; what went wrong on the way is raised here."""
        for hook in self.hooks:
            hook.remove()
        self.hooks = []
        while self.in_flight:
            self.in_flight.popleft().result()

    def drop(self) -> None:
        """Catch no more and forget what there is, after an error: what else went wrong on the way goes with it."""
        for hook in self.hooks:
            hook.remove()
        self.hooks = []
        wait(self.in_flight)
        self.in_flight.clear()
        self.staging.reset()
        self.forget()

    def forget(self) -> None:
        """Parameters have no gradient."""
        self.arrived = set()

    def values(self) -> dict[str, Tensor]:
        """The sums of the parameters that have a gradient, in the parameters' order."""
        return {name: self.sums[name] for name in self.parameters if name in self.arrived}

    def _send(self, name: str, parameter: Tensor) -> None:
        """Hook: the parameter's gradient of this micro-batch is whole. It leaves for the host."""
        assert parameter.grad is not None
        grad = parameter.grad.reshape(-1)
        parameter.grad = None
        if len(self.in_flight) >= NUM_IN_FLIGHT:
            self.in_flight.popleft().result()
        self.in_flight.append(self.host.submit(self._add, name, grad, self.staging.mark()))

    def _add(self, name: str, grad: Tensor, ready: torch.cuda.Event | None) -> None:
        """On the host's thread. ``grad`` is held until all of it is copied, so its memory is not given away too early."""
        pieces = parts(grad.numel(), self.staging.chunk)
        for part, staged in zip(pieces, self.staging.downloads((grad[part] for part in pieces), ready), strict=True):
            target = self.sums[name][part]
            if name in self.arrived:
                target.add_(staged.wait())
            else:
                target.copy_(staged.wait())  # the first, so sums need not be zeroed
            self.staging.release(staged)
        self.arrived.add(name)
