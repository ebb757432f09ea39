//! The mutants of a source and their positions.

use crate::{lines, rust, search};
use heeler_mutant::{Configuration, MutatedSource, SourceFile};
use heeler_mutant_model::{Language, OperatorLevel, Position};
use std::collections::{BTreeSet, HashSet};

#[test]
fn rust_function_has_mutants_of_every_kind() {
    let source = rust(
        "fn f(a: u8, b: &mut u8) -> bool {\n    if a < 2 && !g() { *b += 1; }\n    h(a ^ 1)?;\n    while a as u8 > 1 {}\n    true\n}\n",
    );
    assert_eq!(
        lines(&source),
        [
            "1:33 FunctionValue { if a < 2 && !g() { *b += 1; } h(a ^ 1)?; while a as u8 > 1 {} true } → { true }",
            "1:33 FunctionValue { if a < 2 && !g() { *b += 1; } h(a ^ 1)?; while a as u8 > 1 {} true } → { false }",
            "2:8 ConditionalExpression a < 2 && !g() → true",
            "2:8 ConditionalExpression a < 2 && !g() → false",
            "2:8 LogicalOperator a < 2 && !g() → a < 2 || !g()",
            "2:8 EqualityOperator a < 2 → a <= 2",
            "2:8 EqualityOperator a < 2 → a >= 2",
            "2:8 EqualityOperator a < 2 → a == 2",
            "2:8 EqualityOperator a < 2 → a > 2",
            "2:17 UnaryOperator !g() → g()",
            "2:24 StatementDeletion *b += 1; → ",
            "2:24 AssignmentOperator *b += 1 → *b -= 1",
            "2:24 AssignmentOperator *b += 1 → *b *= 1",
            "3:5 StatementDeletion h(a ^ 1)?; → ",
            "3:7 BitwiseOperator a ^ 1 → a & 1",
            "3:7 BitwiseOperator a ^ 1 → a | 1",
            "4:11 ConditionalExpression a as u8 > 1 → false",
            "4:11 EqualityOperator a as u8 > 1 → a as u8 >= 1",
            "4:11 EqualityOperator a as u8 > 1 → a as u8 <= 1",
            "4:11 EqualityOperator a as u8 > 1 → a as u8 == 1",
            "4:11 EqualityOperator a as u8 > 1 → (a as u8) < 1",
            "5:5 BooleanLiteral true → false",
        ]
    );
}

const DEEP: [&str; 6] = [
    "{ Ok(None) }",
    "{ Ok(Some(Vec::new())) }",
    "{ Ok(Some(Vec::from([(0, [true; 2])]))) }",
    "{ Ok(Some(Vec::from([(0, [false; 2])]))) }",
    "{ Ok(Some(Vec::from([(1, [true; 2])]))) }",
    "{ Ok(Some(Vec::from([(1, [false; 2])]))) }",
];

#[test]
fn functions_return_values_of_their_types() {
    for (returned, values) in [
        ("", vec!["{}"]),
        ("-> ()", vec!["{}"]),
        ("-> bool", vec!["{ true }", "{ false }"]),
        ("-> usize", vec!["{ 0 }", "{ 1 }"]),
        ("-> f64", vec!["{ 0.0 }", "{ 1.0 }", "{ -1.0 }"]),
        ("-> &'static str", vec!["{ \"\" }", "{ \"xyzzy\" }"]),
        ("-> i32", vec!["{ 0 }", "{ 1 }", "{ -1 }"]),
        ("-> &[u8]", vec!["{ &[] }", "{ Vec::leak(vec![0]) }", "{ Vec::leak(vec![1]) }"]),
        ("-> &mut [u8]", vec!["{ &mut [] }", "{ Vec::leak(vec![0]) }", "{ Vec::leak(vec![1]) }"]),
        ("-> String", vec!["{ String::new() }", "{ \"xyzzy\".into() }"]),
        ("-> Option<bool>", vec!["{ None }", "{ Some(true) }", "{ Some(false) }"]),
        ("-> (bool, u8)", vec!["{ (true, 0) }", "{ (true, 1) }", "{ (false, 0) }", "{ (false, 1) }"]),
        ("-> Result<(), E>", vec!["{ Ok(()) }"]),
        ("-> &mut A", vec!["{ Box::leak(Box::new(Default::default())) }"]),
        (
            "-> BTreeMap<bool, ()>",
            vec![
                "{ BTreeMap::new() }",
                "{ BTreeMap::from([(true, ())]) }",
                "{ BTreeMap::from([(false, ())]) }",
            ],
        ),
        (
            "-> Cow<'a, str>",
            vec![
                "{ Cow::Borrowed(\"\") }",
                "{ Cow::Borrowed(\"xyzzy\") }",
                "{ Cow::Owned(\"\".into()) }",
                "{ Cow::Owned(\"xyzzy\".into()) }",
            ],
        ),
        (
            "-> Cow<[u8]>",
            vec![
                "{ Cow::Borrowed(&[]) }",
                "{ Cow::Borrowed(Vec::leak(vec![0])) }",
                "{ Cow::Borrowed(Vec::leak(vec![1])) }",
                "{ Cow::Owned(Vec::new()) }",
                "{ Cow::Owned(Vec::leak(vec![0]).to_vec()) }",
                "{ Cow::Owned(Vec::leak(vec![1]).to_vec()) }",
            ],
        ),
        ("-> Cow<Path>", vec!["{ Cow::Borrowed(Default::default()) }", "{ Cow::Owned(Default::default()) }"]),
        ("-> NonZero<i8>", vec!["{ NonZero::new(1).unwrap() }", "{ NonZero::new(-1).unwrap() }"]),
        (
            "-> a::List<()>",
            vec![
                "{ Default::default() }",
                "{ a::List::new() }",
                "{ a::List::from_iter([()]) }",
                "{ a::List::new(()) }",
                "{ a::List::from(()) }",
            ],
        ),
        ("-> Result<Option<Vec<(u8, [bool; 2])>>>", DEEP.to_vec()),
        ("-> NonZeroU8", vec!["{ NonZeroU8::new(1).unwrap() }"]),
        ("-> [u8; 2]", vec!["{ [0; 2] }", "{ [1; 2] }"]),
        ("-> io::Result<u8>", vec!["{ Ok(0) }", "{ Ok(1) }"]),
        ("-> fmt::Result", vec!["{ Ok(Default::default()) }"]),
        (
            "-> std::vec::Vec<u8>",
            vec!["{ std::vec::Vec::new() }", "{ std::vec::Vec::from([0]) }", "{ std::vec::Vec::from([1]) }"],
        ),
        ("-> Box<T>", vec!["{ Box::new(Default::default()) }"]),
        ("-> !", vec![]),
        ("-> impl Iterator<Item = u8>", vec![]),
    ] {
        let source = rust(&format!("fn f() {returned} {{ g() }}"));
        let found: Vec<_> =
            source.mutants().iter().map(|found| found.mutant.replacement().into_owned()).collect();
        assert_eq!(found, values, "{returned}");
    }
    // Replacing a value by the one already returned is not a mutant. Neither is a replacement that calls the
    // function itself.
    assert_eq!(lines(&rust("fn f() -> bool { false }")).len(), 2);
    assert_eq!(lines(&rust("impl Default for A { fn default() -> Self { A::new() } }")), [""; 0]);
    assert_eq!(lines(&rust("fn main() { g() }")), ["1:11 FunctionValue { g() } → {}"]);
}

#[test]
fn descriptions_say_what_functions_return() {
    for (language, text, expected) in [
        (Language::Rust, "impl A { fn f(&self) -> u8 { g() } }", vec!["A::f returns 0", "A::f returns 1"]),
        (Language::Rust, "fn f() { g() }", vec!["the body of f does nothing"]),
        (Language::C, "void f(void) { g(); }", vec!["the body of f does nothing"]),
        (Language::Cpp, "std::vector<int> f() { return g(); }", vec!["f returns {}"]),
        (Language::Python, "def f() -> str:\n    return g()\n", vec!["f returns \"\""]),
        (Language::Python, "def f() -> None:\n    x = g()\n", vec!["f returns None"]),
    ] {
        let source = search(language, text);
        let described = source.mutants().iter().filter_map(|found| found.mutant.description());
        assert_eq!(described.collect::<Vec<_>>(), expected, "{text}");
    }
    let other = rust("fn f() -> ! { g(a - 1); loop {} }");
    assert!(other.mutants().iter().all(|found| found.mutant.description().is_none()));
}

#[test]
fn mutants_share_the_text_of_their_source() {
    let source = rust("fn f(a: u8) -> bool { a < 1 && !g(a) }");
    for found in source.mutants() {
        assert!(std::sync::Arc::ptr_eq(&found.mutant.source, source.file()), "{:?}", found.mutant);
    }
    // This replacement borrows from the source.
    let dropped = source.mutants().iter().find(|found| found.mutant.mutator.name() == "UnaryOperator");
    let dropped = &dropped.unwrap().mutant;
    assert_eq!((dropped.original(), &*dropped.replacement()), ("!g(a)", "g(a)"));
    assert!(matches!(dropped.replacement(), std::borrow::Cow::Borrowed(_)));
}

#[test]
fn code_that_the_compiler_runs_and_tests_have_no_mutants() {
    for text in [
        "const A: u8 = 1 + 2;",
        "static A: bool = true;",
        "struct A([u8; 1 + 2]);",
        "enum A { B = 1 + 2 }",
        "macro_rules! m { () => { 1 + 2 } }",
        "fn f() -> ! { m!(1 + 2); const B: u8 = 1 + 2; loop {} }".replace("m!", "assert!").as_str(),
        "fn f() -> ! { let a = [0u8; 1 + 2]; loop { match a { true | -1 => {} } } }",
        "fn f() -> ! { let x = const { 1 + 2 }; loop {} }",
        "fn f() -> ! { let a: [u8; 1 + 2]; loop { if let Some(true) = g() {} } }",
        "#[test] fn f() { g(1 + 2); }",
        "#[tokio::test] async fn f() { g(1 + 2); }",
        "#[cfg(test)] mod tests { fn f() { g(1 + 2); } }",
        "#[cfg(all(test, unix))] mod tests;",
    ] {
        let source = rust(text);
        assert_eq!(lines(&source), [""; 0], "{text}");
        assert_eq!(source.modules(), [], "{text}");
    }
}

#[test]
fn arms_and_fields_can_be_left_out_where_others_stand_for_them() {
    let source = rust(
        "fn f(a: u8) -> ! {\n    match a { 1 => g(), #[cfg(windows)] 2 => g(), 3 if h() => {} _ => {} }\n    match a { 1 => g(), b => {} }\n    k(A { b: 1, c, ..d });\n    loop {}\n}\n",
    );
    let found: Vec<String> = lines(&source)
        .into_iter()
        .filter(|line| line.contains("MatchArm") || line.contains("ObjectLiteral"))
        .collect();
    assert_eq!(
        found,
        [
            "2:15 MatchArm 1 => g(), → ",
            "2:25 MatchArm #[cfg(windows)] 2 => g(), →  (not compiled: #[cfg(windows)])",
            "4:7 ObjectLiteral A { b: 1, c, ..d } → A { c, ..d }",
            "4:7 ObjectLiteral A { b: 1, c, ..d } → A { b: 1, ..d }",
        ]
    );
    let emitted = source.emit(1, &BTreeSet::new());
    assert!(emitted.text.contains("{ 1 if heeler_guard::at(1,1)==0 => "), "{}", emitted.text);
}

#[test]
fn further_operators_are_found_where_they_are_asked_for() {
    for (language, text, expected) in [
        (
            Language::Rust,
            "fn f() -> ! { loop { if a { break; } continue; g(7, b.0, 3 as u8); } }",
            vec!["NumberLiteral 7 → 8"],
        ),
        (Language::C, "void f() { g(a + 1); }", vec!["ArithmeticOperator a + 1 → a * 1"]),
        (
            Language::Python,
            "def f():\n    for x in y:\n        if x == 'a' 'b':\n            break\n        g(x, 2, k='c')\n",
            vec![
                "StringLiteral 'c' → 'XXcXX'",
                "Argument g(x, 2, k='c') → g(None, 2, k='c')",
                "Argument g(x, 2, k='c') → g( 2, k='c')",
                "NumberLiteral 2 → 3",
            ],
        ),
        (
            Language::Python,
            "def f():\n    match x:\n        case 1:\n            h = lambda: a.lower()\n",
            vec!["MatchArm", "LambdaBody a.lower() → None", "MethodExpression a.lower() → a.upper()"],
        ),
    ] {
        let file = SourceFile { path: "a".into(), language, text: text.into(), ignored: None };
        let configuration = Configuration::default().with_operators(OperatorLevel::All);
        let all = MutatedSource::search(file.clone(), configuration);
        let standard = lines(&MutatedSource::search(file, Configuration::default()));
        let further: Vec<String> = lines(&all).into_iter().filter(|line| !standard.contains(line)).collect();
        for expected in expected {
            assert!(further.iter().any(|line| line.contains(expected)), "{expected}: {further:#?}");
        }
        let emitted = all.emit(1, &BTreeSet::new());
        assert_eq!(emitted.withdrawn, BTreeSet::new(), "{}", emitted.text);
    }
}

#[test]
fn jumps_of_loops_are_exchanged_where_both_can_be() {
    for (language, text, expected) in [
        (Language::Rust, "loop { if a { break; } continue; }", vec!["break → continue", "continue → break"]),
        (Language::Rust, "'a: for b in c { for d in e { continue 'a; } }", vec!["continue 'a → break 'a"]),
        // A block has no next iteration, and `break` alone has no value.
        (Language::Rust, "while a { 'b: { break 'b; } }", vec![]),
        (Language::Rust, "g(loop { if a { continue; } break 3; })", vec![]),
        (Language::Rust, "while a { if b { continue; } g(loop { break 3; }) }", vec!["continue → break"]),
        (
            Language::C,
            "while (a) { if (b) break; else continue; }",
            vec!["break; → continue;", "continue; → break;"],
        ),
        (Language::C, "do { if (b) break; } while (c);", vec!["break; → continue;"]),
        // A `switch` has no next iteration either, and a loop that runs once ends with both.
        (Language::C, "for (;;) { switch (a) { case 1: break; case 2: continue; } }", vec![]),
        (Language::C, "do { if (b) break; } while (0);", vec![]),
        (Language::C, "switch (a) { case 1: while (b) { break; } }", vec!["break; → continue;"]),
        (Language::Cpp, "for (auto a : b) { if (c) continue; }", vec!["continue; → break;"]),
        (Language::Cpp, "for (;;) { d([] { switch (a) { default: break; } }); }", vec![]),
        (
            Language::Python,
            "for a in b:\n        if c:\n            break\n        if d: continue\n",
            vec!["break → continue"],
        ),
    ] {
        let source = match language {
            Language::Rust => rust(&format!("fn f() -> ! {{ {text} loop {{}} }}")),
            Language::Python => search(language, &format!("def f():\n    {text}")),
            _ => search(language, &format!("void f() {{ {text} }}")),
        };
        let found: Vec<String> = lines(&source)
            .iter()
            .filter_map(|line| Some(line.split_once("LoopControl ")?.1.to_owned()))
            .collect();
        assert_eq!(found, expected, "{text}");
        assert_eq!(source.emit(1, &BTreeSet::new()).withdrawn, BTreeSet::new(), "{text}");
    }
    let emitted =
        search(Language::C, "void f() { while (a) if (b) break; else g(); }").emit(1, &BTreeSet::new());
    assert!(
        emitted.text.contains("if (__hg(5,1)==1) { continue; } else break; else g();"),
        "{}",
        emitted.text
    );
}

#[test]
fn values_of_breaks_and_what_follows_statements_have_unary_operators() {
    let source = rust(
        "fn f() -> ! {\n    a = loop { break -n; };\n    b = 'x: loop { break 'x &s; };\n    c = loop { break -n + 2; };\n    d = loop { break *s; };\n    m! { a }\n    -n;\n    loop {}\n}\n",
    );
    let operators: Vec<String> =
        lines(&source).into_iter().filter(|line| line.contains("Operator")).collect();
    assert_eq!(
        operators,
        [
            "2:22 UnaryOperator -n → n",
            "4:22 ArithmeticOperator -n + 2 → -n - 2",
            "4:22 ArithmeticOperator -n + 2 → -n * 2",
            "4:22 UnaryOperator -n → n"
        ]
    );
}

#[test]
fn replacements_have_the_parentheses_that_make_them_what_is_tested() {
    for (language, code, expected) in [
        (Language::Rust, "a & b ^ c", "(a | b)"),
        (Language::Rust, "a ^ b & c", "(b | c)"),
        (Language::Rust, "a as u8 >= b", "(a as u8) < b"),
        (Language::Rust, "a && b || c", "a || b"),
        (Language::Rust, "a || b && c", "a && (b && c)"),
        (Language::Rust, "a - b - c", "a - b + c"),
        (Language::Rust, "a + b as u8 << c", "a + b as u8 >> c"),
        (Language::C, "a & b ^ c", "(a | b)"),
        (Language::C, "a << b & c", "a << b | c"),
        (Language::Python, "a and b or c", "a or b"),
        (Language::Python, "a | b & c", "(b | c)"),
        (Language::Python, "a - b - c", "a - b + c"),
    ] {
        let text = match language {
            Language::Rust => format!("fn f() -> ! {{ g({code}); loop {{}} }}"),
            Language::Python => format!("def f():\n    g({code})\n"),
            _ => format!("void f() {{ g({code}); }}"),
        };
        let source = search(language, &text);
        let found: Vec<_> =
            source.mutants().iter().map(|one| one.mutant.replacement().into_owned()).collect();
        assert!(found.iter().any(|one| one == expected), "{code}: {found:?}");
    }
}

#[test]
fn constant_functions_have_mutants_and_the_others_stay_constant() {
    let source = rust(
        "pub const unsafe fn f(a: u8) -> bool { a < 2 }\nconst fn g() { loop {} }\nimpl A { const fn h(&self) -> u8 { self.0 } }\n",
    );
    let replaced = |text: &str| text.replace("heeler_guard::", "");
    let all = source.emit(1, &BTreeSet::new());
    assert!(all.text.starts_with("pub  unsafe fn f(a: u8) -> bool {"), "{}", all.text);
    assert!(replaced(&all.text).contains("\n fn g() { match at("), "{}", all.text);
    let of_f: BTreeSet<usize> =
        (0..source.mutants().len()).filter(|&index| &*source.mutants()[index].mutant.item != "f").collect();
    let only_f = source.emit(1, &of_f);
    assert!(
        only_f.text.ends_with("\nconst fn g() { loop {} }\nimpl A { const fn h(&self) -> u8 { self.0 } }\n"),
        "{}",
        only_f.text
    );
}

#[test]
fn code_that_is_not_compiled_or_suppressed_is_ignored_with_reason() {
    for (text, reason) in [
        ("#[cfg(windows)] fn f() -> u8 { g() }", "not compiled: #[cfg(windows)]"),
        ("#[cfg(not(feature = \"std\"))] mod a { fn f() -> u8 { g() } }", "#[cfg(not(feature = \"std\"))]"),
        ("#[mutants::skip] fn f() -> u8 { g() }", "#[mutants::skip]"),
        ("#[cfg_attr(test, mutants::skip)] impl A { fn f() -> u8 { g() } }", "#[mutants::skip]"),
        ("fn f() -> u8 { #![mutants::skip] g() }", "#[mutants::skip]"),
        ("#![cfg(windows)]\nfn f() -> u8 { g() }", "not compiled: #[cfg(windows)]"),
        ("// heeler: no-mutate\nfn f() -> u8 { g() }", "suppressed by a comment"),
        ("fn f() -> u8 { g() } // heeler: no-mutate", "suppressed by a comment"),
        ("fn f() -> ! {\n    // heeler: no-mutate: it only logs\n    g();\n    loop {}\n}", "by a comment"),
        ("fn f() -> ! { match a { #[cfg(windows)] 1 => b + 1, _ => loop {} } }", "#[cfg(windows)]"),
        ("fn f() -> ! { #[cfg(windows)] g(); loop {} }", "#[cfg(windows)]"),
    ] {
        let source = rust(text);
        assert!(!source.mutants().is_empty(), "{text}");
        for found in source.mutants() {
            let given = found.ignored.as_deref().unwrap_or_default();
            assert!(given.contains(reason), "{text}: {given}");
        }
    }
    // The next item is not ignored.
    let source = rust("#[cfg(windows)] fn f() -> u8 { g() }\nfn f() -> u8 { g() }");
    let ignored: Vec<_> = source.mutants().iter().map(|found| found.ignored.is_some()).collect();
    assert_eq!(ignored, [true, true, false, false]);
}

#[test]
fn modules_of_other_files_are_named() {
    let source = rust("mod a;\nmod b { #[path = \"x.rs\"] #[cfg(windows)] mod c; }\n#[cfg(test)] mod tests;");
    let modules: Vec<_> = source.modules().iter().collect();
    assert_eq!(modules.len(), 2);
    assert_eq!((&*modules[0].inside, modules[0].name.as_str(), &modules[0].path), ("", "a", &None));
    assert_eq!((&*modules[1].inside, modules[1].path.as_deref()), ("b", Some("x.rs")));
    assert_eq!(modules[1].ignored.as_deref(), Some("not compiled: #[cfg(windows)]"));
}

#[test]
fn items_have_the_names_of_their_types_and_modules() {
    let source =
        rust("mod m { impl<T> A<T> { fn f() { g(); } } impl B for A { fn f() { fn h() { g(); } } } }");
    let items: HashSet<_> = source.mutants().iter().map(|found| found.mutant.item.to_string()).collect();
    assert_eq!(items, ["m::A::f", "m::<A as B>::f", "m::<A as B>::f::h"].map(str::to_owned).into());
}

#[test]
fn positions_hold_with_carriage_returns_tabs_and_wide_characters() {
    let source = rust("fn f() -> ! {\r\n\tlet s = \"é𝄞\"; g(s + 1);\r\n\tloop {}\r\n}\r\n");
    let found = &source.mutants()[1].mutant;
    assert_eq!(found.original(), "s + 1");
    // A tab, and a character of two UTF-16 units in the string.
    assert_eq!(found.start(), Position { line: 2, column: 19 });
    assert_eq!(found.end(), Position { line: 2, column: 24 });
    assert_eq!(&source.file().text[found.bytes()], "s + 1");
}

#[test]
fn ids_stay_when_code_around_changes_and_differ_for_equal_mutants() {
    let ids = |text: &str| -> Vec<_> { rust(text).mutants().iter().map(|found| found.mutant.id).collect() };
    let before = ids("fn f() -> ! { g(a + 1); g(a + 1); loop {} }");
    let after = ids("fn other() -> ! { loop {} }\n\n/// Docs.\nfn f() -> ! { g(a + 1); g(a + 1); loop { } }");
    assert_eq!(before, after);
    assert_eq!(before.iter().collect::<HashSet<_>>().len(), before.len());
    assert_ne!(before[0], ids("fn h() -> ! { g(a + 1); loop {} }")[0]);
    // Caches and dashboards store these ids, so they must never change between versions.
    assert_eq!(before[0].to_string(), "6448a1eb59bb15a5");
    assert_eq!(before[0].to_string().parse(), Ok(before[0]));
}

#[test]
fn continued_lines_with_carriage_returns_are_no_code() {
    let text = "const char *f() {\n    return \"a + b \\\n  true < 1 \\\n  c\";\n}\n#define M(a) \\\n  g(a + 1)\nint h() {\n    return a < 3;\n}\n";
    for language in [Language::C, Language::Cpp] {
        let expected = [
            "1:17 FunctionValue { return \"a + b \\ true < 1 \\ c\"; } → { return 0; }",
            "8:9 FunctionValue { return a < 3; } → { return 0; }",
            "8:9 FunctionValue { return a < 3; } → { return 1; }",
            "9:12 EqualityOperator a < 3 → a <= 3",
            "9:12 EqualityOperator a < 3 → a >= 3",
        ];
        assert_eq!(lines(&search(language, text)), expected);
        let dos = search(language, &text.replace('\n', "\r\n"));
        assert_eq!(lines(&dos), expected);
        let emitted = dos.emit(1, &BTreeSet::new());
        assert!(emitted.text.contains("\"a + b \\\r\n  true < 1 \\\r\n  c\""), "{}", emitted.text);
    }
}

#[test]
fn c_has_mutants_but_for_constants_and_macros() {
    let source = search(
        Language::C,
        "#define A (1 + 2)\nenum e { B = 1 + 2 };\nstatic int v[1 + 2];\nint f(int a) {\n  static int s = 1 + 2;\n  char b[1 + 2];\n  if (a < 1 || !a) { g(a - 1); }\n  assert(a + 1);\n  CHECK(a + 1);\n  switch (a) { case 1 + 2: a += 1; }\n  for (;a < 3;) { a = sizeof(1 + 2); }\n  return 1;\n}\n",
    );
    assert_eq!(
        lines(&source)[2..],
        [
            "7:7 ConditionalExpression a < 1 || !a → 1",
            "7:7 ConditionalExpression a < 1 || !a → 0",
            "7:7 LogicalOperator a < 1 || !a → a < 1 && !a",
            "7:7 EqualityOperator a < 1 → a <= 1",
            "7:7 EqualityOperator a < 1 → a >= 1",
            "7:16 UnaryOperator !a → a",
            "7:22 StatementDeletion g(a - 1); → ",
            "7:24 ArithmeticOperator a - 1 → a + 1",
            "10:28 AssignmentOperator a += 1 → a -= 1",
            "11:9 ConditionalExpression a < 3 → 0",
            "11:9 EqualityOperator a < 3 → a <= 3",
            "11:9 EqualityOperator a < 3 → a >= 3",
            "11:19 StatementDeletion a = sizeof(1 + 2); → ",
        ]
    );
    assert!(lines(&source)[0].ends_with("→ { return 0; }") && lines(&source)[1].ends_with("→ { return 1; }"));
}
