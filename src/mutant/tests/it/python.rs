//! Python: its mutants and guarded sources, run by a real interpreter.

use crate::{lines, search};
use heeler_mutant::MutatedSource;
use heeler_mutant_model::Language;
use std::{collections::BTreeSet, fs, path::Path, process::Command};

fn python(text: &str) -> MutatedSource {
    search(Language::Python, text)
}

fn emit(source: &MutatedSource) -> String {
    let emitted = source.emit(1, &BTreeSet::new());
    assert_eq!(emitted.withdrawn, BTreeSet::new(), "{}", emitted.text);
    for arm in &emitted.arms {
        assert_eq!(emitted.arm_at(arm.bytes.start), Some(arm.mutant), "{}", emitted.text);
    }
    let none = source.emit(1, &(0..source.mutants().len()).collect());
    assert_eq!(none.text, &*source.file().text, "without mutants the source is the original");
    emitted.text
}

/// Returns the mutants of a text without their positions.
fn mutants(text: &str) -> Vec<String> {
    lines(&python(text)).iter().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
}

#[test]
fn operators_that_the_parser_binds_in_another_way_than_python_have_no_mutants() {
    for code in ["a & b ^ c", "a ^ b & c", "a ^ b & c ^ d"] {
        let source = search(Language::Python, &format!("def f():\n    x = {code}\n"));
        let operators = lines(&source).into_iter().filter(|line| line.contains("BitwiseOperator"));
        assert_eq!(operators.count(), 0, "{code}");
    }
    let source = search(Language::Python, "def f():\n    x = a & (b ^ c) | a & b\n");
    let operators = lines(&source).into_iter().filter(|line| line.contains("BitwiseOperator"));
    assert_eq!(operators.count(), 4);
}

#[test]
fn function_has_mutants_of_every_kind() {
    let source = python(
        "def f(a: int, b=True) -> bool:\n    \"\"\"Docs.\"\"\"\n    if a < 2 and not g():\n        b += 1\n    h(a ^ 1)\n    while a is not None:\n        pass\n    return -a in b if b else a or 1\n",
    );
    assert_eq!(
        lines(&source),
        [
            "1:17 BooleanLiteral True → False",
            "3:5 FunctionValue if a < 2 and not g(): b += 1 h(a ^ 1) while a is not None: pass return -a in b if b else a or 1 → return True",
            "3:5 FunctionValue if a < 2 and not g(): b += 1 h(a ^ 1) while a is not None: pass return -a in b if b else a or 1 → return False",
            "3:8 ConditionalExpression a < 2 and not g() → True",
            "3:8 ConditionalExpression a < 2 and not g() → False",
            "3:8 LogicalOperator a < 2 and not g() → a < 2 or not g()",
            "3:8 EqualityOperator a < 2 → a <= 2",
            "3:8 EqualityOperator a < 2 → a >= 2",
            "3:18 UnaryOperator not g() → g()",
            "4:9 StatementDeletion b += 1 → ",
            "4:9 AssignmentOperator b += 1 → b -= 1",
            "5:5 StatementDeletion h(a ^ 1) → ",
            "5:7 BitwiseOperator a ^ 1 → a & 1",
            "6:11 ConditionalExpression a is not None → False",
            "6:11 EqualityOperator a is not None → a is None",
            "8:12 EqualityOperator -a in b → -a not in b",
            "8:12 UnaryOperator -a → a",
            "8:23 ConditionalExpression b → True",
            "8:23 ConditionalExpression b → False",
            "8:30 LogicalOperator a or 1 → a and 1",
        ]
    );
}

#[test]
fn functions_return_values_of_their_annotations() {
    for (head, body, values) in [
        ("def f():", "g()", vec!["return None"]),
        ("def f() -> None:", "g()", vec!["return None"]),
        ("def f() -> bool:", "g()", vec!["return True", "return False"]),
        ("def f() -> 'int':", "g()", vec!["return 0", "return 1"]),
        ("def f() -> float:", "g()", vec!["return 0.0", "return 1.0"]),
        ("def f() -> str:", "g()", vec!["return \"\""]),
        ("def f() -> list[int]:", "g()", vec!["return []"]),
        ("def f() -> typing.Dict[str, int]:", "g()", vec!["return {}"]),
        ("def f() -> int | None:", "g()", vec!["return None"]),
        ("def f() -> Thing:", "g()", vec!["return None"]),
        ("def f() -> NoReturn:", "g()", vec![]),
        ("async def f() -> int:", "await g()", vec!["return 0", "return 1"]),
        // An early return ends a generator.
        ("def f() -> Iterator[int]:", "yield from g()", vec!["return"]),
        ("async def f():", "yield 1", vec!["return"]),
        ("def f():", "return lambda: (yield)", vec!["return None"]),
        // Values that are already returned, and functions without a body.
        ("def f() -> bool:", "return False", vec!["return True"]),
        ("def f():", "return", vec![]),
        ("def f():", "pass", vec![]),
        ("def f():", "\"\"\"Docs.\"\"\"\n    ...", vec![]),
        ("def f():", "raise NotImplementedError()", vec![]),
        ("@abc.abstractmethod\ndef f():", "return g()", vec![]),
        ("@overload\ndef f():", "return g()", vec![]),
        ("@property\ndef f():", "return g()", vec!["return None"]),
    ] {
        let source = python(&format!("{head}\n    {body}\n"));
        let values_found: Vec<_> = source
            .mutants()
            .iter()
            .map(|found| &found.mutant)
            .filter(|mutant| mutant.mutator.name() == "FunctionValue")
            .map(|mutant| mutant.replacement())
            .collect();
        assert_eq!(values_found, values, "{head} {body}");
    }
    assert_eq!(mutants("def f(): return 1\n"), [""; 0], "there is no line for it");
}

#[test]
fn every_operator_of_a_chain_is_mutated() {
    assert_eq!(
        mutants("x = a < b == c not  in d\n"),
        [
            "EqualityOperator a < b == c not in d → a <= b == c not in d",
            "EqualityOperator a < b == c not in d → a >= b == c not in d",
            "EqualityOperator a < b == c not in d → a < b != c not in d",
            "EqualityOperator a < b == c not in d → a < b == c in d",
        ]
    );
    let text = emit(&python("x = a < (b) is c\n"));
    assert_eq!(
        text,
        "x = ((a < (b) is c) if not __hg__(1,3) else ((a) <= ((b)) is (c)) if __hg__.on == 1 else ((a) >= ((b)) is (c)) if __hg__.on == 2 else ((a) < ((b)) is not (c)))\n"
    );
}

#[test]
fn statements_on_lines_of_their_own_can_be_left_out() {
    let deleted = |text: &str| -> Vec<String> {
        let is_deletion = |line: &String| line.starts_with("StatementDeletion");
        mutants(text).into_iter().filter(is_deletion).map(|line| line[18..].to_owned()).collect()
    };
    for (text, expected) in [
        ("f(\n  1,\n)  # why\n", vec!["f( 1, ) → "]),
        ("await_ = 1\n", vec![]),
        (
            "async def f():\n    await g()\n    yield 1\n    del a[1]\n",
            vec!["await g() → ", "yield 1 → ", "del a[1] → "],
        ),
        ("a.b = 1\na[1] = 2\n", vec!["a.b = 1 → ", "a[1] = 2 → "]),
        // Without its first assignment, a name does not exist.
        ("x = 1\ny = 2\nx = 3\n", vec!["x = 3 → "]),
        ("x: int = 1\nx: int\n", vec![]),
        ("__all__ = ['a']\n__all__ += ['b']\n__slots__ = ()\n", vec![]),
        ("def f():\n    raise ValueError(1)\n", vec!["raise ValueError(1) → "]),
        ("def f():\n    raise NotImplementedError\n", vec![]),
        ("f(); g()\nif a: f()\nassert_that(1)\nassert f()\nimport a\n'text'\n", vec![]),
    ] {
        assert_eq!(deleted(text), expected, "{text}");
    }
}

#[test]
fn what_is_no_code_of_the_product_has_no_mutants() {
    for text in [
        "from __future__ import annotations\nimport a.b\nfrom a import (b, c)\n",
        "def f(a: 'x' + 1) -> Literal[True]: pass\n",
        "x: Annotated[int, 1 + 2]\n",
        "type X = int | str\n",
        "@g(1 + 2, True)\ndef f(): pass\n",
        "@g(True)\nclass A: pass\n",
        "if TYPE_CHECKING:\n    x = 1 + 2\n",
        "if typing.TYPE_CHECKING:\n    f()\n",
        "__all__ = ['a'] + b.__all__\n",
        "f'{a + b!r:{c - d}}' f\"{x < y}\"\n",
        "match a:\n    case -1 | True | {'x': 1.0 + 2j}: pass\n",
        "assert a < b, not c\n",
        "x = 'a' + b + 'c' + d\n",
        "x = '%s' % a\n",
        "x = [0] * n\n",
        "if __name__ == '__main__': pass\n",
        "x = (1 +)\n",
    ] {
        assert_eq!(mutants(text), [""; 0], "{text}");
        emit(&python(text));
    }
    assert_eq!(
        mutants("match a + 1:\n    case [x] if x > 1: pass\n"),
        [
            "ArithmeticOperator a + 1 → a - 1",
            "ConditionalExpression x > 1 → True",
            "ConditionalExpression x > 1 → False",
            "EqualityOperator x > 1 → x >= 1",
            "EqualityOperator x > 1 → x <= 1",
        ]
    );
    // A condition that binds a name, and a literal that already has a mutant.
    assert_eq!(mutants("if (n := f()): pass\nwhile True: pass\n"), ["BooleanLiteral True → False"]);
}

#[test]
fn suppressed_code_is_ignored() {
    for text in [
        "# heeler: no-mutate\n\n# why\nf(1 + 2)\n",
        "f(1 + 2)  # pragma: no mutate\n",
        "# pragma: no mutate\n@g\nclass A:\n    x = not y\n    def f(self, a=1 + 2):\n        return g()\n",
        "class A:\n    # heeler: no-mutate\n    def f():\n        return g() + 1\n",
        "def f():  # pragma: no mutate\n    return g\n",
        "def f(\n    a,  # pragma: no mutate\n):\n    return g\n",
        "if a:  # pragma: no mutate\n    # heeler: no-mutate\n    f()\n",
    ] {
        let source = python(text);
        assert!(!source.mutants().is_empty(), "{text}");
        for found in source.mutants() {
            assert!(
                found.ignored.as_deref().is_some_and(|why| why.contains("by a comment")),
                "{text}: {found:?}"
            );
        }
        assert_eq!(emit(&source), text);
    }
    let source = python("def f():\n    # heeler: no-mutate\n    g()\n    h()\n");
    let ignored: Vec<_> = source.mutants().iter().map(|found| found.ignored.is_some()).collect();
    assert_eq!(ignored, [false, true, false], "the body, and one of its statements");
}

#[test]
fn guards_are_written_as_documented_and_lines_stay() {
    let text = "def f(a):\n    \"\"\"Docs.\n\n    More.\n    \"\"\"\n    for b in a:\n        c = b\n    # Then.\n    o.a += 1; o[k + 1] += c, 2\n    return g\n";
    let guarded = emit(&python(text));
    assert_eq!(
        guarded,
        "def f(a):\n    \"\"\"Docs.\n\n    More.\n    \"\"\"\n    if __hg__(1,1): return None\n    for b in a:\n        __hg__(0,0); c = b\n    __hg__.attribute(2,1,\"+\",\"-\",(o),\"a\")((1)); __hg__.item(3,1,\"+\",\"-\",(o),(((k + 1) if not __hg__(4,1) else ((k) - (1)))))((c, 2))\n    return g\n"
    );
    let lines_of = |text: &str| text.lines().map(|line| line.contains("return g")).collect::<Vec<_>>();
    assert_eq!(lines_of(&guarded), lines_of(text), "the comment has made room for a line");
    let guarded = emit(&python("def f() -> int:\n\twhile a:\n\t\tg()\n\tx = 1\n\tx += yield_\n"));
    assert_eq!(
        guarded,
        "def f() -> int:\n\tif __hg__(1,2): return 0 if __hg__.on == 1 else 1\n\twhile ((a) if not __hg__(3,1) else (False)):\n\t\tif not __hg__(4,1): g()\n\tx = 1\n\tif not __hg__(5,1): x = __hg__.name(6,1,\"+\",\"-\")(x, (yield_))\n"
    );
    let guarded = emit(&python("def f():\n    for a in b:\n        if a:\n            yield a\n"));
    assert!(guarded.contains("for a in b:\n        __hg__(0,0)\n        if ((a) if"), "{guarded}");
    assert!(guarded.contains("    if __hg__(1,1): return\n"), "{guarded}");
}

#[test]
fn expressions_that_are_nested_too_deeply_are_ignored() {
    let chain = (0..60).map(|n| format!("a{n}")).collect::<Vec<_>>().join(" - ");
    let source = python(&format!("x = {chain}\n"));
    let ignored = source.mutants().iter().filter(|found| found.ignored.is_some()).count();
    assert_eq!((source.mutants().len(), ignored), (59, 39));
    emit(&source);
}

/// Executes programs one after the other, and prints a line after the output of each.
const RUNNER: &str = "import runpy, sys\nfor number in range(int(sys.argv[1])):\n    runpy.run_path(f'program-{number}.py', run_name='__main__')\n    print('# End.')\n";

/// Runs Python programs in one interpreter; returns the output of each.
fn run(directory: &Path, texts: &[String]) -> Vec<String> {
    for (number, text) in texts.iter().enumerate() {
        fs::write(directory.join(format!("program-{number}.py")), text).unwrap();
    }
    let mut python = Command::new("python3");
    python.args(["-S", "-W", "ignore", "-c", RUNNER]).arg(texts.len().to_string()).current_dir(directory);
    let output = python.output().unwrap();
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let outputs: Vec<_> = shown(&output.stdout).split_terminator("# End.\n").map(str::to_owned).collect();
    assert!(output.status.success() && outputs.len() == texts.len(), "{}", shown(&output.stderr));
    outputs
}

/// A runtime that enables one mutant, prepended to other sources.
const RUNTIME: &str = include_str!("python_runtime.py");
/// A program that uses every construct of Python and prints its results.
const PROGRAM: &str = include_str!("python_program.py");

#[test]
fn guarded_program_does_what_the_original_does() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("runtime.py"), RUNTIME).unwrap();
    let source = python(PROGRAM);
    assert!(source.mutants().len() > 150, "{}", source.mutants().len());
    let guarded = emit(&source);
    let begin = |on: usize, text: &str| {
        let (head, rest) = text.split_once("\n# Begin.\n").unwrap();
        format!("{head}\nimport runtime; runtime.begin({on})\n{rest}")
    };
    let outputs = run(directory.path(), &[PROGRAM.to_owned(), begin(0, &guarded)]);
    let original = &outputs[0];
    assert_eq!(outputs[1], *original);
    assert!(original.lines().count() > 30, "{original}");
    // The program prints its own line numbers; the guarded program must print the same.
    assert!(original.contains("line "), "{original}");
}

#[test]
fn each_mutant_is_what_its_replacement_says() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("runtime.py"), RUNTIME).unwrap();
    let text = "def f(a, b):\n    a.n += b\n    a[b] *= 3\n    c = 7\n    c //= b\n    c += a[b] if 1 < b <= 2 else 0\n    if b is None or b not in (1, 2):\n        return -c\n    return c, a.n\n\nclass A(dict):\n    n = 1\n\nfor b in (1, 2, 3):\n    try:\n        print(f(A({b: 5}), b))\n    except Exception as error:\n        print(type(error).__name__, error)\n";
    let source = python(text);
    let emitted = source.emit(1, &BTreeSet::new());
    let mut programs = vec![text.to_owned()];
    for (index, found) in source.mutants().iter().enumerate() {
        let mutant = &found.mutant;
        let mut replaced = text.to_owned();
        let bytes = mutant.bytes();
        let replacement = mutant.replacement();
        replaced.replace_range(bytes, if replacement.is_empty() { "pass" } else { &replacement });
        programs
            .extend([replaced, format!("import runtime; runtime.begin({})\n{}", index + 1, emitted.text)]);
    }
    let outputs = run(directory.path(), &programs);
    let mut changed = 0;
    for (found, pair) in source.mutants().iter().zip(outputs[1..].chunks(2)) {
        assert_eq!(pair[1], pair[0], "{:?}", found.mutant);
        changed += usize::from(pair[0] != outputs[0]);
    }
    assert!(source.mutants().len() > 20 && changed > 15, "{changed} of {}", source.mutants().len());
}
