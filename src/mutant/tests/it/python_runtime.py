"""A runtime of guarded sources in which one mutant is on."""

import builtins
import operator

OPERATORS = {"+": operator.iadd, "-": operator.isub, "*": operator.imul, "/": operator.itruediv}
OPERATORS.update({"//": operator.ifloordiv, "%": operator.imod, "**": operator.ipow, "&": operator.iand})
OPERATORS.update({"|": operator.ior, "^": operator.ixor, "<<": operator.ilshift, ">>": operator.irshift})


def begin(on):
    def at(base, count):
        return on - base + 1 if base <= on < base + count else 0

    def name(base, count, own, other):
        return OPERATORS[other if at(base, count) else own]

    def attribute(base, count, own, other, target, attr):
        value = getattr(target, attr)
        return lambda right: setattr(target, attr, name(base, count, own, other)(value, right))

    def item(base, count, own, other, target, key):
        value = target[key]
        return lambda right: target.__setitem__(key, name(base, count, own, other)(value, right))

    at.on, at.name, at.attribute, at.item = on, name, attribute, item
    builtins.__hg__ = at
