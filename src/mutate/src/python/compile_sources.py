"""Compiles guarded Python sources and reports the ones that Python refuses. The argument is a file with one line per
source: the path of the guarded source in its tree, the tree, and the project, separated by tabs. Each output line
begins with its kind.
"""

import os
import py_compile
import sys
import warnings


def say(*words):
    print("\t".join(" ".join(str(word).split()) for word in words))


def error_of(path):
    """Compiles a source; returns any error. The bytecode stays valid while the source has this content."""
    try:
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        py_compile.compile(path, doraise=True, invalidation_mode=mode)
    except py_compile.PyCompileError as error:
        return error.exc_value
    except Exception as error:  # The source has null bytes or is nested too deeply.
        return error
    return None


def error_of_original(path):
    try:
        with open(path, "rb") as file:
            compile(file.read(), path, "exec", dont_inherit=True)
    except Exception as error:
        return error
    return None


def describe(error):
    return f"{type(error).__name__}: {getattr(error, 'msg', None) or error}"


def column_of(error):
    """Returns the column in bytes, from 1; Python counts characters."""
    line = (error.text or "")[: max((error.offset or 1) - 1, 0)]
    return len(line.encode("utf-8", "replace")) + 1


def main():
    # Mutants may cause warnings that the original code must not.
    warnings.simplefilter("ignore")
    say("version", sys.implementation.name, sys.version, sys.prefix)
    for path in sys.path:
        say("path", os.path.realpath(path))
    with open(sys.argv[1], encoding="utf-8") as file:
        sources = [line.rstrip("\n").split("\t") for line in file]
    for below, tree, project in sources:
        error = error_of(os.path.join(tree, below))
        if error is None:
            continue
        original = error_of_original(os.path.join(project, below))
        if original is not None:
            say("original", below, describe(original))
        elif isinstance(error, SyntaxError) and error.lineno:
            say("error", below, error.lineno, column_of(error), describe(error))
        else:
            say("error", below, 1, 1, describe(error))
    say("end")


main()
