//! Guarded sources.

use crate::{rust, search};
use heeler_mutant::MutatedSource;
use heeler_mutant_model::Language;
use proptest::prelude::*;
use std::{collections::BTreeSet, fs, path::Path};

/// Returns the guarded source after checking the properties of every guarded source.
fn emit(source: &MutatedSource) -> String {
    let emitted = source.emit(1, &BTreeSet::new());
    let written: BTreeSet<_> = emitted.arms.iter().map(|arm| arm.mutant).collect();
    assert_eq!(written.len(), emitted.arms.len(), "no mutant is written twice");
    for (index, found) in source.mutants().iter().enumerate() {
        let is_out = found.ignored.is_some() || emitted.withdrawn.contains(&index);
        assert_eq!(written.contains(&index), !is_out, "{:?}", found.mutant);
    }
    for arm in &emitted.arms {
        assert_eq!(emitted.arm_at(arm.bytes.start), Some(arm.mutant));
        assert_ne!(emitted.arm_at(arm.bytes.end), Some(arm.mutant));
        let function = &source.functions()[source.mutants()[arm.mutant].function];
        assert!(function.bytes.contains(&emitted.original_byte(arm.bytes.start)), "{arm:?}");
    }
    let none = source.emit(1, &(0..source.mutants().len()).collect());
    assert_eq!(none.text, &*source.file().text, "without mutants the source is the original");
    emitted.text
}

#[test]
fn every_form_of_guard_is_written_as_documented() {
    let source = rust("//! Docs.\n#![allow(x)]\nfn f() -> u8 {\n    g(a\n < b);\n    1\n}\n");
    assert_eq!(
        emit(&source),
        "//! Docs.\n#![allow(x)]\nfn f() -> u8 { match heeler_guard::at(1,2) { 1 => return 0, 2 => return 1, _ => {} } \n    if heeler_guard::at(3,1)==0 { g((match heeler_guard::at(4,4) { 1 => { ((a) <= (b)) } 2 => { ((a) >= (b)) } 3 => { ((a) == (b)) } 4 => { ((a) > (b)) } _ => { (a\n < b) } })); }\n    1\n}\n"
    );
    let source = search(Language::C, "int f(int a) { if (a < 1) { g(); } return 2; }");
    assert_eq!(
        emit(&source),
        "int f(int a) { switch (__hg(1,2)) { case 1: return 0; case 2: return 1; }  if ((__hg(3,4)==1 ? (1) : __hg_on==4 ? (0) : __hg_on==5 ? ((a) <= (1)) : __hg_on==6 ? ((a) >= (1)) : (a < 1))) { if (__hg(7,1)==0) { g(); } } return 2; }"
    );
}

#[test]
fn literals_of_rust_are_not_divided_from_what_gives_them_their_meaning() {
    for (code, expected) in [
        // The literal has the type of the cast.
        (
            "-3_000 as i64",
            "(match heeler_guard::at(1,1) { 1 => { (((3_000)) as i64) } _ => { (-3_000 as i64) } })",
        ),
        (
            "!(-1)\n as u8",
            "(match heeler_guard::at(1,2) { 1 => { ((((-1)))  as u8) } 2 => { (!(((1)))  as u8) } _ => { (!(-1)\n as u8) } })",
        ),
        ("-a as i64", "(match heeler_guard::at(1,1) { 1 => { ((a)) } _ => { (-a) } }) as i64"),
        // References to literals have a static lifetime, so a guard must enclose the whole expression.
        ("g(&-1)", "g((match heeler_guard::at(1,1) { 1 => { (&((1))) } _ => { (&-1) } }))"),
        (
            "&[1 << 2, 3]",
            "(match heeler_guard::at(1,1) { 1 => { (&[((1) >> (2)), 3]) } _ => { (&[1 << 2, 3]) } })",
        ),
        (
            "&(true, &[1])",
            "(match heeler_guard::at(1,1) { 1 => { (&((false), &[1])) } _ => { (&(true, &[1])) } })",
        ),
        ("&(a << 1)", "&((match heeler_guard::at(1,1) { 1 => { ((a) >> (1)) } _ => { (a << 1) } }))"),
        ("&mut [true]", "&mut [(match heeler_guard::at(1,1) { 1 => { (false) } _ => { (true) } })]"),
    ] {
        let text = emit(&rust(&format!("fn f() -> impl Y {{ {code} }}")));
        let body = text.split_once(" heeler_guard::at(").unwrap().1.split_once(";  ").unwrap().1;
        assert_eq!(body, format!("{expected} }}"), "{code}");
    }
    // Each mutant would contain a copy of a long expression.
    let long = format!("&[{}true]", "1, ".repeat(100));
    let text = emit(&rust(&format!("fn f() -> impl Y {{ {long} }}")));
    assert!(
        text.contains("1, (match heeler_guard::at(1,1) { 1 => { (false) } _ => { (true) } })]"),
        "{text}"
    );
}

#[test]
fn what_the_parser_does_not_understand_withdraws_no_mutant() {
    // The macros keep the parser from recognizing the function, and a guard changes how they are parsed.
    let text = "\tLIST__FN list_of_text& list_of_text::operator=(list_of_text&& rhs) LIST_API_NOEXCEPT_IF_NOT_ATOMIC\n\t{\n\t\tif (this == &rhs) return *this;\n\t}\n";
    let source = search(Language::Cpp, text);
    let emitted = source.emit(1, &BTreeSet::new());
    assert_eq!((source.mutants().len(), emitted.withdrawn), (3, BTreeSet::new()), "{}", emitted.text);
}

#[test]
fn guards_add_no_lines() {
    for (language, code) in [
        (
            Language::Rust,
            "fn f() -> bool {\n    a < b // '\"'\n        && c == \"d\n e\" /*\n*/ || !x(|| {\n        '\\n'\n    })\n}\n",
        ),
        (
            Language::C,
            "int f() {\n    return a < b // '\"'\n        && c == \"d\\\n e\" /*\n*/ || !x(\n        '\\n');\n}\n",
        ),
        (
            Language::Cpp,
            "int f() {\n    return a < b // '\"'\n        && c == 'd' /*\n*/ || !x([] {\n        1'0; });\n}\n",
        ),
    ] {
        for code in [code.to_owned(), code.replace('\n', "\r\n")] {
            let text = emit(&search(language, &code));
            assert_eq!(text.matches('\n').count(), code.matches('\n').count(), "{text}");
            assert!(text.contains("!=") && text.contains("<="), "{text}");
        }
    }
}

#[test]
fn numbers_stay_when_mutants_are_withdrawn() {
    let source = rust("fn f() -> u8 { a + b * c }");
    let emitted = source.emit(10, &BTreeSet::from([0, 1]));
    let expected = "fn f() -> u8 { heeler_guard::at(16,0);  (match heeler_guard::at(12,2) { 1 => { ((a) - (b * c)) } 2 => { ((a) * (b * c)) } _ => { (a + (match heeler_guard::at(14,2) { 1 => { ((b) / (c)) } 2 => { ((b) + (c)) } _ => { (b * c) } })) } }) }";
    assert_eq!(emitted.text, expected);
    let emitted = source.emit(10, &BTreeSet::from([0, 2]));
    assert!(
        emitted.text.contains("{ match heeler_guard::at(10,2) { 2 => return 1, _ => {} }"),
        "{}",
        emitted.text
    );
}

#[test]
fn rounds_of_loops_are_counted() {
    let source =
        rust("fn f() {\n    'a: loop { #![allow(x)] g(); }\n    while h() {}\n    for x in y {}\n}\n");
    assert_eq!(
        emit(&source),
        "fn f() { match heeler_guard::at(1,1) { 1 => return, _ => {} } \n    'a: loop { #![allow(x)] heeler_guard::at(0,0);  if heeler_guard::at(2,1)==0 { g(); } }\n    while (match heeler_guard::at(3,1) { 1 => { (false) } _ => { (h()) } }) { heeler_guard::at(0,0); }\n    for x in y { heeler_guard::at(0,0); }\n}\n"
    );
}

#[test]
fn mutants_that_break_the_syntax_are_withdrawn() {
    // If an operand ended with a comment, the comment would hide the closing parenthesis. The parser keeps
    // the comment out of the operand.
    let source = rust("fn f(a: u8) -> ! { g(a // one\n + 1); loop {} }");
    let text = emit(&source);
    assert!(text.contains("{ ((a) - (1)) }"), "{text}");
}

#[test]
fn functions_that_are_not_understood_alone_are_guarded_as_well() {
    // The parser reports an error in the macro before the function, with or without guards.
    let source = search(
        Language::C,
        "API(int *) f(int a)\n{\n    if (a < 1) { return g(a + 1); }\n    return 0;\n}\n",
    );
    let emitted = source.emit(1, &BTreeSet::new());
    assert!(emitted.withdrawn.is_empty(), "{}", emitted.text);
    assert_eq!(emitted.arms.len(), 5, "{}", emitted.text);
    emit(&source);
    // Code outside functions, and a method without its class.
    let source = search(
        Language::Python,
        "n = 1 + 2\nclass A:\n    def f(self, a=1 + 1):\n        return a < n\n\n    def g(self):\n        self.n -= 1",
    );
    assert!(source.emit(1, &BTreeSet::new()).withdrawn.is_empty());
}

/// Returns this repository's sources below a directory.
fn sources(directory: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn real_sources_are_guarded_without_withdrawal() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut texts = Vec::new();
    for directory in ["src/core/src", "src/protocol/src", "worker/src/batch", "src/mutant"] {
        sources(&root.join(directory), &mut texts);
    }
    let mut count = 0;
    for text in &texts {
        let source = rust(text);
        let emitted = source.emit(1, &BTreeSet::new());
        assert!(emitted.withdrawn.is_empty(), "{:?}", emitted.withdrawn);
        emit(&source);
        count += source.mutants().len();
    }
    assert!(texts.len() > 50 && count > 2000, "{} sources, {count} mutants", texts.len());
}

/// Rust expressions with comments and line breaks between their parts.
fn expression() -> impl Strategy<Value = String> {
    let leaf =
        prop::sample::select(vec!["a", "1", "true", "f()", "x as u64", "-1", "s.b[0]", "\"é𝄞\"", "'\\''"]);
    leaf.prop_map(str::to_owned).prop_recursive(5, 40, 3, |inner| {
        let operators = ["+", "-", "<", "==", "&&", "<<", "^", "%", "||", ">="];
        let spaces = [" ", "\n", "\r\n\t", " /* c */ ", " // c\n"];
        let binary = (
            inner.clone(),
            prop::sample::select(operators.to_vec()),
            prop::sample::select(spaces.to_vec()),
            inner.clone(),
        );
        prop_oneof![
            binary.prop_map(|(left, operator, space, right)| format!(
                "({left}){space}{operator}{space}{right}"
            )),
            inner.clone().prop_map(|one| format!("!({one})")),
            inner.clone().prop_map(|one| format!("(if {one} {{ g({one}); 1 }} else {{ 2 }})")),
            inner.clone().prop_map(|one| format!("(|x| {{ x += {one}; while {one} {{}} x }})")),
            (inner.clone(), inner)
                .prop_map(|(one, other)| format!("(match {one} {{ y if {other} => y, _ => {one} }})")),
        ]
    })
}

proptest! {
    #[test]
    fn generated_functions_are_guarded_without_withdrawal(one in expression(), other in expression()) {
        let text = format!("fn f() -> bool {{\n    let x = {one};\n    y = {other};\n    {one}\n}}\n");
        let source = rust(&text);
        let emitted = source.emit(1, &BTreeSet::new());
        prop_assert!(emitted.withdrawn.is_empty(), "{}", emitted.text);
        emit(&source);
    }

    #[test]
    fn broken_sources_are_guarded_as_far_as_they_are_understood(
        text in "(fn f\\(\\) \\{|\\}|\\(|\\)|a|\\+|<|if |match |;|\n|//|\"|#\\[cfg\\(|=|é| )*",
        is_c in any::<bool>(),
    ) {
        let source = search(if is_c { Language::C } else { Language::Rust }, &text);
        emit(&source);
    }

    #[test]
    fn broken_sources_of_cpp_are_guarded_as_far_as_they_are_understood(
        text in "(int f\\(\\) \\{|API_X |~A\\(|::|template <|\\}|\\(|\\)|a|\\+|<|>|if |constexpr |!|;|\n|//|\"|#if |=|é| )*",
    ) {
        let source = search(Language::Cpp, &text);
        emit(&source);
    }

    #[test]
    fn broken_sources_of_python_are_guarded_as_far_as_they_are_understood(
        text in "(def f\\(a\\):|class A:|\\(|\\)|a|\\+|<|if |for |while |else|x \\+= |;|:|\n|\n    |\n\t|#|\"\"\"|'|\\\\|yield |return |=|é| )*",
    ) {
        let source = search(Language::Python, &text);
        let emitted = source.emit(1, &BTreeSet::new());
        let written: BTreeSet<_> = emitted.arms.iter().map(|arm| arm.mutant).collect();
        for (index, found) in source.mutants().iter().enumerate() {
            let is_out = found.ignored.is_some() || emitted.withdrawn.contains(&index);
            prop_assert_eq!(written.contains(&index), !is_out);
            prop_assert_eq!(&text[found.mutant.bytes()], found.mutant.original());
        }
        let again = source.emit(1, &emitted.withdrawn);
        prop_assert_eq!((again.text, again.withdrawn), (emitted.text, BTreeSet::new()));
        let none = source.emit(1, &(0..source.mutants().len()).collect());
        prop_assert_eq!(none.text, text);
    }
}
