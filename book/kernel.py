"""The kernel that executes the book: IPython's, which also notes what of this tree the notebook uses.

The package is compiled with one statement more at the head of every function, which notes that it ran. So only the
package pays for the record, not torch or matplotlib (a tracer, as of coverage.py, costs a third of the time).
`write_spec` says how to start the kernel. In it the magic `%used` displays the record.
"""

import ast
import hashlib
import json
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

NAME = "fedgo-book"
RECORD = "application/vnd.fedgo.used+json"
PACKAGE = "fedgo"
MARK = "__ran__"  # called with the name of the function; a class does not change a name that ends so
# What the newest torch tells everybody who imports BoTorch is no output of a chapter.
PASSED_OVER = "ignore:`torch.jit.script` is deprecated:FutureWarning"


def write_spec(folder: Path, root: Path) -> None:
    """Describe the kernel for the tree ``root`` below ``folder``, a part of JUPYTER_PATH."""
    script = [str(Path(__file__).resolve()), str(root.resolve()), "-f", "{connection_file}"]
    command = [sys.executable, "-W", PASSED_OVER, *script]
    text = json.dumps({"argv": command, "display_name": "The book's", "language": "python"})
    target = folder / "kernels" / NAME / "kernel.json"
    if not target.is_file() or target.read_text(encoding="utf-8") != text:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def marked(scope: ast.Module | ast.ClassDef, within: str = "") -> None:
    """Put the mark at the head of every function and method that ``scope`` defines, after its docstring."""
    for node in scope.body:
        if isinstance(node, ast.ClassDef):
            marked(node, f"{within}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            call = ast.Call(ast.Name(MARK, ast.Load()), [ast.Constant(within + node.name)], [])
            statement = ast.copy_location(ast.Expr(call), node.body[0])
            node.body.insert(
                ast.get_docstring(node, clean=False) is not None, ast.fix_missing_locations(statement)
            )


class Loader(SourceFileLoader):
    """Loads a module of the package from its text, marked."""

    def __init__(self, name: str, path: str, record: "Record") -> None:
        super().__init__(name, path)
        self.record = record

    def get_code(self, fullname: str) -> CodeType:
        """The code of the text as it is now: no compiled file is read or left behind."""
        content = self.get_data(self.path)
        self.record.contents[self.path] = hashlib.sha256(content).hexdigest()
        tree = ast.parse(content)
        marked(tree)
        return compile(tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, in which the mark has a meaning."""
        setattr(module, MARK, self.record.ran.setdefault(self.path, set()).add)
        super().exec_module(module)


class Record(MetaPathFinder):
    """What this process uses of the tree ``root`` from now on; the package is imported from there alone."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.contents: dict[str, str] = {}  # of every imported file of the package
        self.ran: dict[str, set[str]] = {}
        self.opened: dict[str, str] = {}  # what other files of the tree held when they were read
        self.traces: list[Any] = []
        sys.meta_path.insert(0, self)
        sys.addaudithook(self.hear)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module of the package is; nothing of any other."""
        if fullname.partition(".")[0] != PACKAGE:
            return None
        spec = PathFinder.find_spec(fullname, [str(self.root)] if path is None else path)
        if spec and spec.origin and isinstance(spec.loader, SourceFileLoader):
            spec.loader = Loader(fullname, spec.origin, self)
        return spec

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Python's own events: a file is opened; and one of the package's: a stored trace is read."""
        if event == "fedgo.trace":
            self.traces += arguments
        elif event == "open" and isinstance(arguments[0], str):
            # a module that is imported opens its file as well; anybody else reads what is written there
            importing = sys._getframe(1).f_code.co_filename.startswith("<frozen importlib")
            if not importing and not self.hashing(sys._getframe(1)):
                self.read(arguments[0])

    def hashing(self, frame: FrameType | None) -> bool:
        """Whether the file is opened for the hash of what its code does, which a docstring does not change."""
        by = str(self.root / PACKAGE / "paper/code.py")
        while frame and frame.f_code.co_filename != by:
            frame = frame.f_back
        return frame is not None

    def read(self, file: str) -> None:
        """Note what ``file`` holds, if it is one of the tree and not known yet."""
        name = self.inside(file)
        if name and name not in self.opened:
            self.opened[name] = ""  # opening it here is heard as well
            self.opened[name] = hashlib.sha256(Path(file).read_bytes()).hexdigest()

    def inside(self, file: str) -> str:
        """The path below the root of a ``file`` that a reader of the tree sees; empty for any other."""
        path = Path(file).resolve()
        if not path.is_relative_to(self.root) or not path.is_file():
            return ""
        below = path.relative_to(self.root)
        hidden = [
            part for part in below.parts[:-1] if part.startswith((".", "_")) or part.endswith(".egg-info")
        ]
        return "" if hidden else below.as_posix()

    def report(self) -> dict[str, Any]:
        """What was used until now, with paths below the root."""
        modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == PACKAGE]
        files = {file for module in modules if (file := getattr(module, "__file__", None))}
        return {
            "python": sys.executable,
            "foreign": sorted(file for file in files if file not in self.contents),
            "contents": {self.inside(file): content for file, content in self.contents.items()},
            "ran": {self.inside(file): sorted(names) for file, names in self.ran.items()},
            "opened": self.opened,
            # what another process does is not recorded here
            "processes": any(name.startswith("multiprocessing.popen_") for name in sys.modules),
            "traces": self.traces,
        }


def main() -> None:
    """Start the kernel: `kernel.py ROOT -f CONNECTION_FILE`."""
    root = Path(sys.argv.pop(1))
    sys.path[0] = str(root)
    record = Record(root)

    from ipykernel.kernelapp import IPKernelApp
    from IPython.display import display

    app: Any = IPKernelApp.instance()
    quiet = [
        "--IPKernelApp.log_level=40",
        "--HistoryManager.hist_file=:memory:",
    ]  # else a warning about local TCP
    app.initialize([*sys.argv[1:], *quiet])

    def used(line: str) -> None:
        display({RECORD: record.report()}, raw=True)

    app.shell.register_magic_function(used)
    record.opened.clear()  # what IPython looked up to start
    app.start()


if __name__ == "__main__":
    main()
