"""Every small, plausible mistake in one module: what ``scripts/mutate`` plants, one at a time.

Not touched: imports, annotations, decorators, docstrings, f-strings, what a ``raise`` says and what goes to
the log (a person reads those, no test should depend on their words).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace

_SWAPS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitAnd: (ast.BitOr,),
}
_NAMES = {"max": "min", "min": "max", "any": "all", "all": "any"}
_OPTIONAL_KEYWORDS = frozenset({"replace", "_lease"})
"""Functions every keyword of which may be left out."""
_CODE = re.compile(r"[a-z][a-z_]*")
"""Texts that the program itself compares."""


@dataclass(frozen=True)
class Mutant:
    line: int
    """Of the statement that it is in (of an ``if`` or a loop: its head)."""
    end_line: int
    where: str
    """The function it is in, as ``code.co_qualname`` has it; "" = what runs at import."""
    what: str
    plant: Callable[[], None] = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        """The same as long as its function is: what stands above it does not matter."""
        return f"{self.where or 'import'}: {self.what}"


def mutants(tree: ast.Module) -> list[Mutant]:
    """All of ``tree``; each one's ``plant`` changes it for good, so that only one can be had of a tree."""
    found: list[Mutant] = []
    seen: dict[str, int] = {}
    for mutant in _inside(tree, scope="", where="", line=0, end=0):
        seen[mutant.name] = seen.get(mutant.name, 0) + 1
        times = seen[mutant.name]  # of those that read alike
        found.append(mutant if times == 1 else replace(mutant, what=f"{mutant.what} ({times})"))
    return found


def _inside(node: ast.AST, *, scope: str, where: str, line: int, end: int) -> Iterator[Mutant]:
    """Of all that stands in ``node``. ``scope``: of names that are defined here."""
    for name, value in ast.iter_fields(node):
        if name in ("decorator_list", "annotation", "returns", "bases", "pattern"):
            continue
        at_import = name in ("defaults", "kw_defaults") and where == scope  # not when the function runs
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST):
                continue

            def put(new: ast.AST, name: str = name, index: int = index) -> None:
                if isinstance(getattr(node, name), list):
                    getattr(node, name)[index] = new
                else:
                    setattr(node, name, new)

            yield from _of(child, put, scope=scope, where="" if at_import else where, line=line, end=end)


def _of(
    node: ast.AST, put: Callable[[ast.AST], None], *, scope: str, where: str, line: int, end: int
) -> Iterator[Mutant]:
    if isinstance(node, ast.Import | ast.ImportFrom | ast.JoinedStr):
        return
    if isinstance(node, ast.Assign) and scope and not where and ast.unparse(node.targets[0]).isupper():
        return  # a member of an enum: a document's word
    if isinstance(node, ast.Expr) and (isinstance(node.value, ast.Constant) or _logs(node.value)):
        return
    if isinstance(node, ast.stmt):
        line, end = node.lineno, _head_end(node)
    for what, new in _variants(node):

        def plant(new: ast.AST = new) -> None:
            put(new)

        yield Mutant(line, end, where, what, plant)
    if isinstance(node, ast.Raise):
        return
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        scope = f"{scope}.{node.name}" if scope else node.name
        if isinstance(node, ast.FunctionDef) and not where:  # what is nested in it is made by its own code
            where = scope
    yield from _inside(node, scope=scope, where=where, line=line, end=end)


def _variants(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    text = ast.unparse(node) if isinstance(node, ast.expr) else ""
    match node:
        case ast.Compare():
            for i, op in enumerate(node.ops):
                for other in _SWAPS[type(op)]:
                    new = deepcopy(node)
                    new.ops[i] = other()  # type: ignore[assignment]
                    yield f"{text} → {ast.unparse(new)}", new
        case ast.BoolOp():
            new = deepcopy(node)
            new.op = _SWAPS[type(node.op)][0]()  # type: ignore[assignment]
            yield f"{text} → {ast.unparse(new)}", new
            for i, operand in enumerate(node.values):
                rest = [deepcopy(v) for j, v in enumerate(node.values) if j != i]
                less = rest[0] if len(rest) == 1 else ast.BoolOp(op=deepcopy(node.op), values=rest)
                yield f"{text}: without {ast.unparse(operand)}", less
        case ast.UnaryOp(op=ast.Not()):
            yield f"{text} → {ast.unparse(node.operand)}", deepcopy(node.operand)
        case ast.BinOp() if type(node.op) in _SWAPS:
            new = deepcopy(node)
            new.op = _SWAPS[type(node.op)][0]()  # type: ignore[assignment]
            yield f"{text} → {ast.unparse(new)}", new
        case ast.AugAssign() if type(node.op) in _SWAPS:
            new = deepcopy(node)
            new.op = _SWAPS[type(node.op)][0]()  # type: ignore[assignment]
            yield f"{ast.unparse(node)} → {ast.unparse(new)}", new
            yield f"{ast.unparse(node)} left out", _pass(node)
        case ast.Constant(value=bool()):
            yield f"{text} → {not node.value}", ast.copy_location(ast.Constant(not node.value), node)
        case ast.Constant(value=int() | float()):
            other = node.value + 1
            yield f"{text} → {other}", ast.copy_location(ast.Constant(other), node)
        case ast.Constant(value=str()) if _CODE.fullmatch(node.value):
            yield f"{text} → 'no {node.value}'", ast.copy_location(ast.Constant(f"no {node.value}"), node)
        case ast.If() | ast.While() | ast.IfExp():
            new = deepcopy(node)
            new.test = ast.UnaryOp(op=ast.Not(), operand=new.test)
            yield f"not: {ast.unparse(node.test)}", new
        case ast.comprehension():
            for i, test in enumerate(node.ifs):
                new = deepcopy(node)
                del new.ifs[i]
                yield f"without if {ast.unparse(test)}", new
        case ast.Expr(value=ast.Call()):
            yield f"{ast.unparse(node)} left out", _pass(node)
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield f"return {ast.unparse(value)} → None", ast.copy_location(ast.Return(), node)
        case ast.Raise():
            yield "raise left out", _pass(node)
        case ast.Continue() | ast.Break():
            yield f"{ast.unparse(node)} left out", _pass(node)
        case ast.Call(func=ast.Name(id=name)) if name in _NAMES:
            new = deepcopy(node)
            new.func = ast.Name(id=_NAMES[name], ctx=ast.Load())
            yield f"{text} → {ast.unparse(new)}", new
        case ast.Call(func=ast.Name(id=name)) if name in _OPTIONAL_KEYWORDS:
            for i, keyword in enumerate(node.keywords):
                new = deepcopy(node)
                del new.keywords[i]
                yield f"{name} without {ast.unparse(keyword)}", new
        case ast.Set() if len(node.elts) > 1:
            for i, element in enumerate(node.elts):
                new = deepcopy(node)
                del new.elts[i]
                yield f"{{…}} without {ast.unparse(element)}", new


def _logs(value: ast.expr) -> bool:
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and isinstance(value.func.value, ast.Name)
        and value.func.value.id == "log"
    )


def _head_end(node: ast.stmt) -> int:
    """The last line of a statement, or of the head of one that has a body."""
    body = getattr(node, "body", None) or getattr(node, "cases", None)
    if not body:
        return node.end_lineno or node.lineno
    first = body[0].pattern if isinstance(body[0], ast.match_case) else body[0]
    return max(node.lineno, first.lineno - 1)


def _pass(node: ast.AST) -> ast.AST:
    return ast.copy_location(ast.Pass(), node)
