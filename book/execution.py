"""Execute one notebook through papermill, with the book's own kernel, and stamp what came of it."""

import datetime
import logging
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import chapters
import definitions
import freshness
import gates
import kernel
import nbformat
import papermill
from chapters import EXECUTED, BuildError, where
from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from papermill.exceptions import PapermillExecutionError
from traitlets import CaselessStrEnum, default

LIMIT = 900  # seconds that one cell may take; the slowest takes some 100
# Tensors of some ten megabytes come and go at every step. Of what a kernel frees it gives nothing back, or every page
# would be asked for and cleared again; glibc reads these, nobody else does.
MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**34),
    "MALLOC_TOP_PAD_": str(2**28),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Kernels(AsyncKernelManager):
    """Kernels that are spoken to through files of their own: of two that start at once, both may get the same port."""

    transport = CaselessStrEnum(
        ["tcp", "ipc"], default_value="ipc" if os.name == "posix" else "tcp", config=True
    )

    @default("ip")
    def _files(self) -> str:
        """What the names of the files begin with; as they come, they are the same for every kernel."""
        beginning = Path(tempfile.gettempdir()) / f"fedgo-{uuid.uuid4().hex[:12]}"
        return str(beginning) if self.transport == "ipc" else "127.0.0.1"


def set_environment(root: Path, store: bool = True) -> None:
    """Variables for the kernels: one thread (see book/choices), memory kept, and nobody's own configuration."""
    for name in [name for name in os.environ if name.startswith(("PYTHON", "FEDGO_TRACES"))]:
        del os.environ[name]  # PYTHONPATH would be another package, PYTHONSTARTUP other code
    jupyter = root / EXECUTED / ".jupyter"
    os.environ.update(dict.fromkeys(THREADS, "1") | MEMORY)
    os.environ.update(
        {
            "PYTHONHASHSEED": "0",
            "JUPYTER_PATH": str(jupyter),  # where the book's kernel is
            "JUPYTER_RUNTIME_DIR": str(jupyter / "runtime"),
            "IPYTHONDIR": str(root / EXECUTED / ".ipython"),
            "MPLCONFIGDIR": str(root / EXECUTED / ".matplotlib"),
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",  # MPLBACKEND=agg would leave no images
        }
    )
    if store:
        os.environ["FEDGO_TRACES"] = str(root / "book/_traces")


def prepare(root: Path) -> None:
    """What kernels find when they start: how they are started, and matplotlib's list of fonts.

    A kernel that has to make that list says so on stderr, if it takes long.
    """
    kernel.write_spec(root / EXECUTED / ".jupyter", root)
    if not [*(root / EXECUTED / ".matplotlib").glob("fontlist-*.json")]:
        subprocess.run(
            [sys.executable, "-c", "import matplotlib.font_manager"], check=True, capture_output=True
        )


def execute(root: Path, name: str, parameters: Mapping[str, Any], output: Path, limit: float = LIMIT) -> None:
    """Run notebook ``name``; put it, stamped and checked, at ``output``, which a fault leaves as it was."""
    before = definitions.package(root)  # first of all: an edit made from here on leaves the output stale
    content = chapters.text_path(root, name).read_bytes()
    text = chapters.read_text(root, name)
    if faults := gates.unfit_parameters(text, name, parameters):
        raise BuildError("\n".join(faults))
    started, seconds = time.time(), time.perf_counter()
    whole = run(root, name, text, parameters, limit)
    *cells, record = chapters.code_cells(whole)
    report = record.outputs[0].data[kernel.RECORD]
    if report["foreign"]:
        raise BuildError(f"notebook {name} imported {report['foreign'][0]}, which is not of this tree")
    values = chapters.parameters(text) | {key: repr(value) for key, value in parameters.items()}
    stamp = freshness.stamp(root, cells, values, report, before) | {
        "notebook": definitions.sha256(content),
        "commit": freshness.commit(root),
        "seconds": round(time.perf_counter() - seconds, 1),
        "date": datetime.datetime.fromtimestamp(started, datetime.UTC).isoformat(timespec="seconds"),
    }
    text.cells = [cell for cell in whole.cells if cell is not record]
    metadata = {"language_info": whole.metadata["language_info"], "fedgo": stamp}
    executed = chapters.joined(text, cells, metadata)
    for cell in executed.cells:
        cell.metadata.pop("papermill", None)  # holds times and paths of this machine
    if faults := gates.faults(executed, name) + ([] if parameters else gates.glued_gaps(executed, name)):
        raise BuildError("\n".join(faults))
    chapters.write(output, nbformat.writes(executed) + "\n")


def run(root: Path, name: str, text: Any, parameters: Mapping[str, Any], limit: float) -> Any:
    """The notebook as papermill left it, one cell longer: the last one has the kernel's record."""
    source = nbformat.from_dict(text)
    source.cells = [*text.cells, nbformat.v4.new_code_cell("%used")]
    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # what is wrong is said below, once
    at: list[str] = []
    try:
        return papermill.execute_notebook(
            source,
            None,
            parameters=dict(parameters),
            kernel_name=kernel.NAME,
            kernel_manager_class=Kernels,
            progress_bar=False,
            execution_timeout=limit,
            resources={"metadata": {"path": str(root)}},  # where the kernel starts
            shutdown_kernel="immediate",  # an interrupt first would leave a message in the terminal
            on_cell_start=lambda cell, cell_index: at.append(where(cell_index, cell.source)),
        )
    except PapermillExecutionError as error:
        tail = "\n".join(f"    {line}" for line in f"{error.ename}: {error.evalue}".splitlines()[-5:])
        raise BuildError(
            f"notebook {name} failed at {where(error.cell_index, error.source)}:\n{tail}"
        ) from None
    except CellTimeoutError:
        raise BuildError(
            f"notebook {name} was stopped at {at[-1]}: it reached its time limit of "
            f"{limit:g} s, or its outputs did not end; a longer limit: make book LIMIT={4 * limit:g}"
        ) from None
    except DeadKernelError as error:
        raise BuildError(f"notebook {name}: its kernel died (out of memory?) at {at[-1]}: {error}") from None
