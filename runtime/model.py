"""`load` and `CompiledModel`: what a deployment sees."""

from __future__ import annotations

import importlib
import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from graphwright.containers import Values, describe
from graphwright.errors import ArtifactError, InputError
from graphwright.runtime.artifact import ArtifactFile, Source
from graphwright.runtime.binding import Signature
from graphwright.runtime.calling import CALL, Calling, write_back
from graphwright.runtime.executor import CpuExecutor
from graphwright.runtime.interop import is_tensor, tensor_to_array
from graphwright.runtime.library import allowed_cpus
from graphwright.runtime.manifest import THREADS, Manifest, TensorSpec, Variant
from graphwright.runtime.program import Program

if TYPE_CHECKING:
    from graphwright.runtime.cuda_state import DeviceState


class Executor(Protocol):
    """A device's way to run a program.  The CUDA one is `runtime/cuda_executor.py`."""

    device: str
    variant: Variant
    program: Program

    def call(self, given: Sequence[Any], out: Sequence[Any] | None) -> list[Any]: ...

    def default(self, index: int) -> np.ndarray: ...

    def warm_up_buckets(self) -> bool:
        """Runs the model on zeros in every declared shape bucket; False when there are none."""
        ...


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes at one setting of the symbols.  `lower_bound`: what no arena plan can go below."""

    arena: int
    lower_bound: int
    weights: int


class CompiledModel:
    """A loaded model.  Calling it from several threads at once is safe.

    `model(*arrays, **by_name)` returns a tuple in output order; `run` takes and returns a dict.
    Inputs are numpy arrays or anything with DLPack or the array interface, of exactly the declared
    element type; outputs are fresh numpy arrays (torch tensors when an input is one), or those
    given as `out`.  Sequences are lists of numpy arrays, absent optional values None;
    `run_tensors` speaks of the tensors that they consist of.
    """

    def __init__(self, artifact: ArtifactFile, device: str, threads: int | None) -> None:
        self._artifact = artifact
        self._signature = Signature(artifact.manifest)
        self._executor = make_executor(artifact, self._signature, device, threads)
        self._count = len(self._signature.inputs)
        self._call = self._executor.call
        described = artifact.manifest.metadata.get(CALL)
        self._calling = None if described is None else Calling(described, artifact.manifest)
        self._values = Values.of(artifact.manifest.metadata)
        if self._values is not None:
            self._values.check_counts(self._count, len(self._signature.outputs))
        self._device_state: DeviceState | None = None
        if self._calling is not None and self._calling.updates and device != "cpu":
            from graphwright.runtime.cuda_executor import CudaExecutor
            from graphwright.runtime.cuda_state import DeviceState

            assert isinstance(self._executor, CudaExecutor)
            self._device_state = DeviceState(
                self._executor, self._calling.states, self._calling.updates
            )
        self._state: dict[str, Any] = {}
        self._lock = threading.Lock()  # state passes from call to call

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of each input; shape entries are ints, symbols or expressions.

        The dtype of a sequence is "sequence", of an optional value "optional sequence" and the like.
        """
        if self._values is not None:
            return _specs(self._signature.inputs, self._values.inputs)
        return self._signature.inputs if self._calling is None else self._calling.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of each output."""
        if self._values is not None:
            return _specs(self._signature.outputs, self._values.outputs)
        return self._signature.outputs if self._calling is None else self._calling.outputs

    @property
    def manifest(self) -> Manifest:
        """The whole manifest of the artifact."""
        return self._artifact.manifest

    @property
    def variant(self) -> Variant:
        """The variant that runs on this machine."""
        return self._executor.variant

    @property
    def artifact(self) -> ArtifactFile:
        """The artifact that it was loaded from."""
        return self._artifact

    @property
    def executor(self) -> Executor:
        """What runs it: for tools that look inside a run."""
        return self._executor

    @property
    def device(self) -> str:
        """Where it runs."""
        return self._executor.device

    def __call__(self, *args: Any, out: Sequence[Any] | None = None, **named: Any) -> Any:
        """Runs the model.  Raises InputError naming the input that does not fit.

        A model with a structure of its own (a compiled module) takes the module's arguments and
        returns what the module returns.
        """
        if self._calling is not None:
            return self._calling.rebuild(self._run_described(args, named, out))
        if self._values is not None:
            return tuple(self._run_values(self._values, args, named, out))
        if named or len(args) != self._count:
            args = tuple(self._signature.order_arguments(args, named))
        return tuple(self._call(args, out))

    def run(
        self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Runs the model with inputs by name and returns outputs by name."""
        if not isinstance(inputs, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError("run takes inputs by name; call the model for inputs by position")
        if self._calling is not None:
            return self._run_named(self._calling, inputs, out)
        if self._values is not None:
            names = self._values.output_names
            targets = None if out is None else [out.get(n) for n in names]
            results = self._run_values(self._values, (), inputs, targets)
            return dict(zip(names, results, strict=True))
        return self.run_tensors(inputs, out)

    def run_tensors(
        self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """As `run`, with the tensors of which sequences and optional values consist."""
        names = [t.name for t in self._signature.outputs]
        targets: list[Any] | None = None
        if out is not None:
            for name in out:
                if name not in names:
                    raise InputError(
                        f"the model has no output {name!r}; it has: {', '.join(names)}"
                    )
            targets = [out.get(n) for n in names]
        results = self._call(self._signature.order_arguments((), inputs), targets)
        return dict(zip(names, results, strict=True))

    def _run_named(
        self, calling: Calling, inputs: Mapping[str, Any], out: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        if out is not None:
            raise InputError("a compiled module makes its own results: leave `out` away")
        results = self._run_described((), inputs, None)
        named = zip(calling.outputs, sorted(calling.places), strict=True)
        return {spec.name: results[calling.places[position]] for spec, position in named}

    def _run_described(
        self, args: Sequence[Any], named: Mapping[str, Any], out: Sequence[Any] | None
    ) -> list[Any]:
        """All outputs, after state has moved on and changed arguments hold their new values."""
        calling = self._calling
        assert calling is not None
        if out is not None:
            raise InputError("a compiled module makes its own results: leave `out` away")
        flat = calling.flatten(args, named)
        given: list[Any] = [None] * self._count
        for position, i in calling.positions.items():
            given[i] = flat[position]
        if not calling.updates:
            return self._call(given, None)
        state = self._device_state
        if state is not None:
            with self._lock:
                return state.call(given)
        with self._lock:
            for name, i in calling.states.items():
                given[i] = self._state.get(name)  # None: its first value
            results = self._call(given, None)
            by_input = {i: name for name, i in calling.states.items()}
            for o, i in calling.updates.items():
                if i in by_input:
                    new = results[o]
                    self._state[by_input[i]] = tensor_to_array(new) if is_tensor(new) else new
                else:
                    write_back(given[i], results[o], self._signature.inputs[i].name)
        return results

    def state(self) -> dict[str, np.ndarray]:
        """The values that the model keeps from call to call, by name: copies."""
        calling = self._calling
        if calling is None:
            return {}
        executor = self._executor
        if self._device_state is not None:
            with self._lock:
                return {name: self._device_state.get(name) for name in calling.states}
        return {
            name: np.array(self._state.get(name, executor.default(i)))
            for name, i in calling.states.items()
        }

    def reset_state(self, values: Mapping[str, Any] | None = None) -> None:
        """Puts the state back to the artifact's first values, or to `values` by name."""
        known = {} if self._calling is None else self._calling.states
        fresh: dict[str, Any] = {}
        for name, value in (values or {}).items():
            if name not in known:
                raise InputError(f"there is no state {name!r}; there is: {', '.join(known)}")
            fresh[name] = np.array(tensor_to_array(value) if is_tensor(value) else value)
        if self._device_state is not None:
            with self._lock:
                for name in known if values is None else fresh:
                    self._device_state.set(name, fresh.get(name))
            return
        with self._lock:
            self._state = fresh if values is None else {**self._state, **fresh}

    def _run_values(
        self, values: Values, args: Sequence[Any], named: Mapping[str, Any], out: Any
    ) -> list[Any]:
        names, signature = values.input_names, self._signature
        if len(args) > len(names):
            raise InputError(f"{len(args)} inputs are given, the model has {len(names)}")
        twice = [n for n in names[: len(args)] if n in named]
        if twice:
            raise InputError(f"input {twice[0]!r} is given twice, by position and by name")
        least = {s.name: s.min for s in self.manifest.symbols}
        shapes = [tuple(signature.size(e, least) for e in t.shape) for t in signature.inputs]
        given = {**dict(zip(names, args, strict=False)), **named}
        tensors = values.tensors(given, signature.input_dtypes, shapes)
        tensors = signature.order_arguments(tensors, {})
        return values.values(self._call(tensors, values.targets(out, len(signature.outputs))))

    def warm_up(self, shapes: Mapping[str, Sequence[int]] | None = None) -> None:
        """Prepares and runs the model once on zeros of these input shapes (None: the sizes that it
        was optimised for; on a GPU, every shape bucket), so that the first real call is as fast as
        the next.
        """
        if shapes is None and self._executor.warm_up_buckets():
            return
        dtypes = self._signature.input_dtypes
        self._call(
            [np.zeros(s, d) for s, d in zip(self._shapes(shapes), dtypes, strict=True)], None
        )

    def memory(self, shapes: Mapping[str, Sequence[int]] | None = None) -> MemoryUse:
        """What one call needs for these input shapes (None: the sizes that it was optimised for)
        beside inputs and outputs; each call in flight has an arena, weights are shared.
        """
        binding = self._signature.bind(self._shapes(shapes))
        arena, bound = self._executor.program.arena(binding)
        return MemoryUse(arena, bound, sum(size for _, size in self._artifact.weights))

    def _shapes(self, given: Mapping[str, Sequence[int]] | None) -> list[tuple[int, ...]]:
        typical = {s.name: s.opt for s in self.manifest.symbols}
        given = {} if given is None else given
        if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError("shapes are given by input name: {'x': (1, 3, 224, 224)}, not arrays")
        for name in given:
            if name not in {t.name for t in self._signature.inputs}:
                raise InputError(f"the model has no input {name!r}")
        return [
            tuple(given[t.name])
            if t.name in given
            else tuple(self._signature.size(e, typical) for e in t.shape)
            for t in self._signature.inputs
        ]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the artifact to a file, whole or not at all."""
        self._artifact.save(path)

    def __repr__(self) -> str:
        ins, outs = (", ".join(t.name for t in ts) for ts in (self.inputs, self.outputs))
        return f"<CompiledModel ({ins}) -> ({outs}) on {self.device}, {self.variant.target}>"


def _specs(
    tensors: tuple[TensorSpec, ...], values: Sequence[tuple[str, Any]] | None
) -> tuple[TensorSpec, ...]:
    if values is None:
        return tensors
    return tuple(
        tensors[form] if isinstance(form, int) else TensorSpec(name, describe(form), ())
        for name, form in values
    )


def make_executor(
    artifact: ArtifactFile, signature: Signature, device: str, threads: int | None
) -> Executor:
    """The executor of a device: "cpu", "cuda" or "cuda:N".  Raises ArtifactError, InputError."""
    kind = device.partition(":")[0]
    if device == "cpu":
        return CpuExecutor(artifact, signature, threads)
    if kind == "cuda":
        try:
            module = importlib.import_module("graphwright.runtime.cuda_executor")
        except ModuleNotFoundError as error:
            raise ArtifactError(
                f"device {device!r}: this installation cannot run on CUDA: {error}"
            ) from None
        return module.CudaExecutor(artifact, signature, device)
    raise InputError(f"device {device!r} is unknown; want cpu, cuda or cuda:N")


def load(source: Source, device: str = "cpu", threads: int | None = None) -> CompiledModel:
    """Loads an artifact from a path or bytes.

    Weights of a file stay memory-mapped.  `threads` (CPU): how many threads take part in a call,
    default what the artifact was compiled with, else all CPUs that the process may use.  Raises ArtifactError for a file that is damaged, of
    another format or for another machine; InputError for a bad argument.
    """
    artifact = ArtifactFile(source)
    if threads is None:
        threads = _compiled_threads(artifact.manifest)
    return CompiledModel(artifact, device, threads)


def _compiled_threads(manifest: Manifest) -> int | None:
    """The artifact's own wish, within the CPUs of this process: a file must not start hundreds."""
    wish = manifest.metadata.get(THREADS, "")
    return min(int(wish), allowed_cpus()) or None if re.fullmatch("[0-9]{1,4}", wish) else None
