#!/usr/bin/env python3
# -*- coding: utf-8 -*-
"""A program with every form of Python, which prints what it computes."""
from __future__ import annotations

import asyncio
import enum
import inspect
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Dict, Iterator, NamedTuple, Optional

# Begin.

if TYPE_CHECKING:
    from typing import Any

__all__ = ["a"] + ["b"]
__version__ = "1" + ".2"


def here() -> int:
    return sys._getframe(1).f_lineno


class Colour(enum.Enum):
    RED = 1 + 1
    GREEN = RED * 2

    @property
    def is_red(self) -> bool:
        """Says whether it is red."""
        return self is Colour.RED


class Point(NamedTuple):
    x: int = 1 - 1
    y: int = 2


@dataclass
class Item:
    name: str
    tags: list = field(default_factory=list)
    count: int = 0
    __secret: int = 3

    def add(self, n=1, *, really=True):
        if really and n > 0:
            self.count += n
            self.__secret += n
        elif n < 0:
            self.count -= -n
        else:
            self.tags.append(n)
        return self

    def __repr__(self):
        return "Item(%s, %d, %r, %d)" % (self.name, self.count, self.tags, self._Item__secret)


def counts(text: str) -> Dict[str, int]:
    """Counts letters.

    "Quoted" text, and # no comment.

    """
    found: Dict[str, int] = {}

    for letter in text:
        if letter not in found:
            found[letter] = 0
        found[letter] += 1
    return found


def evens(limit: int) -> Iterator[int]:
    n = 0
    while True:
        if n >= limit:
            return
        if n % 2 == 0:
            yield n
        n += 1


async def ticks(n):
    for i in range(n):
        await asyncio.sleep(0)
        yield i * 2


async def collect():
    total = 0
    async for tick in ticks(4):
        total += tick
    return total + len([t async for t in ticks(3) if t > 0])


def classify(value):
    match_kind = "none"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        match_kind = "number" if 0 <= value < 100 else "large"
    elif value is None or value == "":
        match_kind = "empty"
    else:
        match_kind = f"other {value!r:>{5 + 2}}"
    return match_kind


def long_lines(a, b):
    c = (a +
         b
         - 1)
    d = a \
        + b * \
        2
    e = a and (
        # a comment
        b
    ) or c
    return c, d, e, [
        x + 1
        for x in range(
            a
        )
        if x != 1
    ]


def closures():
    total = 0

    def add(n):
        nonlocal total
        total += n
        return total

    functions = [lambda x, k=k + 1: x * k for k in range(3)]
    add(1); add(2)
    if total > 2: add(10)
    return total, [f(2) for f in functions], (y := 5) + y


def cleanup(log):
    try:
        log.append(1)
        raise ValueError("x" * 2)
    except (ValueError, KeyError) as error:
        log.append(str(error) + "!")
    else:
        log.append("else")
    finally:
        log.append("finally")
    with open(__file__) as file, open(__file__) as other:
        log.append(file.readline() == other.readline())
    del log[0]
    return log


def in_place():
    a = b = [1]
    b += [2]
    c = {1, 2, 3}
    c &= {2, 3}
    c |= {9}
    d = 7
    d //= 2
    d **= 3
    d <<= 1
    d %= 50
    e = {"k": [1, 2]}
    e["k"][0] += 5
    e["k"] += 3, 4
    f = 1
    f += yield_nothing() or 2
    return a is b, a, c, d, e, f


def yield_nothing():
    """It does nothing but return."""


def generator_sends():
    total = 0
    while total < 10:
        total += yield total
    return "done"


def tabs(a):
	if a:
		a -= 1
	return ~a, -a


class Meta(type):
    def __new__(mcs, name, bases, space):
        return super().__new__(mcs, name, bases, {k: v for k, v in space.items() if k != "dropped"})


class Made(metaclass=Meta):
    dropped = True
    kept = not dropped
    squares = [n ** 2 for n in range(4)]
    values = {k: v for k, v in zip("ab", range(2)) if v <= 1}
    size = 1
    size += 2


def defaults(a=1 + 1, *args, flag=False, **rest) -> Optional[int]:
    if flag:
        return None
    return a + len(args) + len(rest)


def marked() -> bool:
    """Its code is made of lines."""
    x = 1

    # Here.
    x = x + 1
    print("line", here())
    return x > 1


print(Colour.RED.is_red, Colour.GREEN.value, Point(), Point(3)._asdict())
print(Item("a").add().add(-2).add(0).add(really=False), Item("b").count)
print(counts("hello"), list(evens(7)), asyncio.run(collect()))
print([classify(v) for v in (1, 100, True, None, "", "x", 2.5)])
print(long_lines(1, 2), long_lines(3, 0))
print(closures(), cleanup([]), in_place(), tabs(1), tabs(0))
sender = generator_sends()
print(next(sender), sender.send(4), sender.send(5))
try:
    sender.send(3)
except StopIteration as end:
    print(end.value)
print(Made.kept, Made.squares, Made.values, Made.size, hasattr(Made, "dropped"))
print(defaults(), defaults(1, 2, 3, k=1), defaults(flag=True), inspect.signature(defaults))
print(marked(), inspect.isgeneratorfunction(evens), inspect.iscoroutinefunction(collect))
print(__all__, __version__, sum(x * x for x in range(5)), {*range(2)} | {5}, 1 if 2 > 1 else 0)
for word in counts.__doc__.splitlines():
    print(word, end="|\n")
i = 0
while i < 3: i += 1
for i in range(2): print(i, end=" "); print(not i)
print("line", here())
lines = {name: f.__code__.co_firstlineno for name, f in list(globals().items()) if inspect.isfunction(f)}
for name in sorted(lines):
    print(name, lines[name])
