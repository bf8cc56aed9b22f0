"""The outline of a class, read from its source without importing its module.

Importing a method imports torch, which takes longer than everything else that a help text or an
error about an option needs. An outline has the name, docstring, constants and constructor's
signature of the class, read from the syntax tree of its module. Nothing that the module imports is
run, except for the parts of the standard library that types and constants are written with.
"""

from __future__ import annotations

import ast
import builtins
from contextlib import suppress
from copy import copy
from functools import lru_cache
from importlib import import_module
from importlib.abc import InspectLoader
from importlib.util import find_spec
from typing import Any

# Standard modules that are imported to evaluate a source: fast, and without side effects.
_PLAIN = ("abc", "collections", "enum", "fractions", "math", "typing")
_PACKAGE = __name__.partition(".")[0]


@lru_cache(maxsize=256)
def outline(module: str, name: str) -> type:
    """A stand-in for the class `name` of a module, of which no instance can be made.

    Constants and base classes are also looked up in other modules of this package. A constant that
    needs anything else (a tensor, say) is left out, and so are methods.
    """
    source = _source(module)
    definition = source.classes[name]
    bases = tuple(base for node in definition.bases if (base := source.base(node)) is not None)
    constants: dict[str, ast.stmt] = {}
    for node in definition.body:
        target, value = _assigned(node)
        if value is not None and not source.unknown(value) - constants.keys():
            constants[target] = node
    constructors = [node for node in definition.body if _is_constructor(node)]
    stand_in = copy(definition)
    stand_in.bases, stand_in.keywords, stand_in.decorator_list = [], [], []
    stand_in.body = [*map(_refusing, constructors), *constants.values()] or [ast.Pass()]
    # As in the sources, annotations are evaluated only when they are asked for.
    future = ast.ImportFrom("__future__", [ast.alias("annotations")], 0)
    tree = ast.fix_missing_locations(ast.Module([future, stand_in], []))
    space = source.names(stand_in) | {"__name__": module}
    exec(compile(tree, f"<outline of {module}>", "exec"), space)
    made: type = space[name]
    attributes = {
        key: value
        for key, value in vars(made).items()
        if key not in ("__dict__", "__weakref__", "__doc__")
    }
    return type(name, bases, {**attributes, "__doc__": ast.get_docstring(definition, clean=False)})


class _Source:
    """The classes, constants and imports of a module, by name, from its syntax tree."""

    def __init__(self, module: str) -> None:
        spec = find_spec(module)
        loader = None if spec is None else spec.loader
        text = loader.get_source(module) if isinstance(loader, InspectLoader) else None
        if text is None:
            raise ImportError(f"there is no source of {module}")
        tree = ast.parse(text)
        self.module = module
        self.classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self._constants: dict[str, ast.expr] = {}
        self._imports: dict[str, tuple[str, str | None]] = {}  # name -> module, name there
        for node in tree.body:
            target, value = _assigned(node)
            if value is not None:
                self._constants[target] = value
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    self._imports[alias.asname or alias.name] = (alias.name, None)
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    self._imports[alias.asname or alias.name] = (node.module, alias.name)

    def value(self, name: str) -> Any:
        """The value of a name in this module; KeyError if it takes running the module to know."""
        if name in self._constants:
            node = self._constants[name]
            if self.unknown(node):
                raise KeyError(name)
            return eval(compile(ast.Expression(node), self.module, "eval"), self.names(node))
        if name in self.classes:
            return outline(self.module, name)
        module, there = self._imports[name]
        if module.partition(".")[0] in _PLAIN:
            imported = import_module(module)
            return imported if there is None else getattr(imported, there)
        if module.partition(".")[0] == _PACKAGE and there is not None:
            return _source(module).value(there)
        raise KeyError(name)

    def names(self, node: ast.AST) -> dict[str, Any]:
        """The names that a piece of source mentions, with their values, as far as known."""
        values = {}
        for name in _mentioned(node):
            with suppress(KeyError):
                values[name] = self.value(name)
        return values

    def unknown(self, node: ast.AST) -> set[str]:
        """The names in a piece of source whose values are not known without running the module."""
        return _mentioned(node) - self.names(node).keys() - vars(builtins).keys()

    def base(self, node: ast.expr) -> type | None:
        """The outline of a base class; None for a class from outside this package."""
        try:
            base = self.value(node.id) if isinstance(node, ast.Name) else None
        except KeyError:
            return None
        return base if isinstance(base, type) and base.__module__.startswith(_PACKAGE) else None


@lru_cache(maxsize=64)
def _source(module: str) -> _Source:
    return _Source(module)


def _assigned(node: ast.stmt) -> tuple[str, ast.expr | None]:
    """Name and value of `name = value` or `name: kind = value`; value None for anything else."""
    if isinstance(node, ast.Assign | ast.AnnAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Name):
            return target.id, node.value
    return "", None


def _mentioned(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _is_constructor(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == "__init__"


def _refusing(node: ast.stmt) -> ast.stmt:
    """The constructor with its signature, and a body that only raises an error."""
    assert isinstance(node, ast.FunctionDef)
    (refusal,) = ast.parse("raise TypeError('an outline cannot be built: import the class')").body
    bare = copy(node)
    bare.body, bare.decorator_list = [refusal], []
    return bare
