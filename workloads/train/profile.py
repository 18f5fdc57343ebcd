"""A trace of some steps by XLA's profiler, laid down as `xprof --logdir` and TensorBoard read it.

Ray's own profiler on demand (`ray.util.tpu.init_jax_profiler`, Ray 2.60) has its dashboard's agent
capture the trace by TensorFlow, which is not in our images; so the steps are declared.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax

from workloads.data import storage
from workloads.settings import ProfileSettings

PROFILE = "profile"


class Profile:
    """One on each host, which writes a file of its own."""

    def __init__(self, settings: ProfileSettings | None, output: str) -> None:
        """`output`: the run's folder. Without settings nothing is traced."""
        self._steps = range(0) if settings is None else settings.traced
        session = f"steps-{self._steps.start}-{self._steps.stop - 1}"
        # All hosts of one trace are in one folder: so they are shown side by side.
        folder = storage.join(output, PROFILE, "plugins", "profile", session)
        self._url = storage.join(folder, f"host-{jax.process_index()}.xplane.pb")
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Around a step, by which its events are found in the trace."""
        if number in self._steps and self._scratch is None:
            self._start()
        with jax.profiler.StepTraceAnnotation("step", step_num=number):
            yield

    def after(self, number: int, result: jax.Array, *, last: bool) -> None:
        """Writes the trace if it ends with this step, or if no step follows."""
        if self._scratch is None or (number + 1 in self._steps and not last):
            return
        result.block_until_ready()
        jax.profiler.stop_trace()
        with self._scratch as folder:
            (trace,) = Path(folder).rglob("*.xplane.pb")
            storage.write_atomically(self._url, trace.read_bytes())
        self._scratch = None

    def _start(self) -> None:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # every call of Python: it would slow the steps it shows
        self._scratch = tempfile.TemporaryDirectory(prefix="raytpu-profile-")
        jax.profiler.start_trace(self._scratch.name, profiler_options=options)
