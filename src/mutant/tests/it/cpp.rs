//! C++: the mutants of its sources, and checks that guarded sources behave like the originals.

use crate::{lines, search};
use heeler_mutant::{
    MutatedSource, Rollback, RollbackStep,
    compiler::{self, CompiledSource, CompilerError, MutantKey},
};
use heeler_mutant_model::Language;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn cpp(text: &str) -> MutatedSource {
    search(Language::Cpp, text)
}

#[test]
fn function_has_mutants_of_every_kind() {
    let source = cpp(
        "bool A::f(int a, B *b) const {\n  if (a < 2 && !b) { b->c += 1; }\n  auto d = [a] { return -a; };\n  while (d) {}\n  g(a ^ 1);\n  return true;\n}\n",
    );
    assert_eq!(
        lines(&source)[2..],
        [
            "2:7 ConditionalExpression a < 2 && !b → true",
            "2:7 ConditionalExpression a < 2 && !b → false",
            "2:7 LogicalOperator a < 2 && !b → a < 2 || !b",
            "2:7 EqualityOperator a < 2 → a <= 2",
            "2:7 EqualityOperator a < 2 → a >= 2",
            "2:16 UnaryOperator !b → b",
            "2:22 StatementDeletion b->c += 1; → ",
            "2:22 AssignmentOperator b->c += 1 → b->c -= 1",
            "3:25 UnaryOperator -a → a",
            "4:10 ConditionalExpression d → false",
            "5:3 StatementDeletion g(a ^ 1); → ",
            "5:5 BitwiseOperator a ^ 1 → a & 1",
            "6:10 BooleanLiteral true → false",
        ]
    );
    assert!(
        lines(&source)[0].ends_with("→ { return true; }")
            && lines(&source)[1].ends_with("→ { return false; }")
    );
}

#[test]
fn functions_return_values_of_their_types() {
    for (head, values) in [
        ("void f()", vec!["{}"]),
        ("bool f()", vec!["{ return true; }", "{ return false; }"]),
        ("unsigned long f()", vec!["{ return 0; }", "{ return 1; }"]),
        ("std::size_t f()", vec!["{ return 0; }", "{ return 1; }"]),
        ("static inline double f() noexcept", vec!["{ return 0.0; }", "{ return 1.0; }"]),
        ("const char *f()", vec!["{ return 0; }"]),
        ("std::string f()", vec!["{ return \"\"; }"]),
        ("std::vector<int> f()", vec!["{ return {}; }"]),
        ("template <class T> T f()", vec!["{ return {}; }"]),
        ("auto f() -> int", vec!["{ return 0; }", "{ return 1; }"]),
        ("auto f() -> A *", vec!["{ return 0; }"]),
        ("API_EXPORT int f()", vec!["{ return 0; }", "{ return 1; }"]),
        ("auto f()", vec![]),
        ("std::string &f()", vec![]),
        ("decltype(auto) f()", vec![]),
        ("[[noreturn]] void f()", vec![]),
        ("struct A f()", vec![]),
        ("int main()", vec![]),
        ("A::A() : b(c)", vec![]),
        ("A::~A()", vec![]),
        ("constexpr int f()", vec![]),
    ] {
        let source = cpp(&format!("{head} {{ return g(); }}"));
        let found: Vec<_> =
            source.mutants().iter().map(|found| found.mutant.replacement().into_owned()).collect();
        assert_eq!(found, values, "{head}");
    }
    // Replacing a value by the one already returned is not a mutant.
    assert_eq!(lines(&cpp("A *f() { return 0; } A g() { return {}; } void h() {}")), [""; 0]);
    let conversion = cpp("struct A { explicit operator bool() const { return b; } };");
    assert_eq!(conversion.mutants().len(), 2);
}

#[test]
fn constants_and_what_is_no_code_have_no_mutants() {
    for text in [
        "const int a = 1 + 2;",
        "enum class A { b = 1 + 2 };",
        "struct A { int a = 1 + 2; int b : 1 + 2; int c[1 + 2]; };",
        "consteval int f() { return 1 + 2; }",
        "unsigned operator\"\" _a(unsigned long long b) { return b + 1; }",
        "auto f() -> decltype(1 + 2);",
        "template <int A = 1 + 2> struct B;",
        "auto f() { static_assert(1 + 2 == 3, \"\"); }",
        "auto f() { if constexpr (1 + 2 > 3) { } }",
        "auto f() { std::array<int, 1 + 2> a; }",
        "auto f() { constexpr int a = 1 + 2; static int b = 1 + 2; int c[1 + 2]; }",
        "auto f() { return sizeof(1 + 2); }",
        "auto f() { return noexcept(1 + 2); }",
        "auto f() noexcept(1 + 2 > 2) { }",
        "template <class T> auto f() requires (sizeof(T) > 1 + 2) { }",
        "auto f(int a = 1 + 2) { }",
        "auto f() { switch (g) { case 1 + 2: ; } }",
        "auto f() { CHECK(1 + 2); }",
        "#define A (1 + 2)",
        "auto f() = delete;",
        "struct A { A() = default; };",
    ] {
        assert_eq!(lines(&cpp(text)), [""; 0], "{text}");
    }
}

#[test]
fn constants_are_computed_by_the_program_unless_the_compiler_needs_them() {
    for (text, is_needed) in [
        ("void f() { const int a = 1 + 2; g(a); }", false),
        ("void f() { int const a{1 + 2}; g(a); }", false),
        ("void f() { const int a = 1 + 2; g([&] { h(a); }); }", false),
        ("void f() { const int a = 1 + 2; int b[a]; }", true),
        ("void f() { const int a = 1 + 2; std::array<int, a> b; }", true),
        ("void f(int b) { const int a = 1 + 2; switch (b) { case a: g(); } }", true),
        ("void f() { const int a = 1 + 2; static_assert(a == 3, \"\"); }", true),
        ("void f() { const int a = 1 + 2; constexpr int b = a; }", true),
        ("void f() { const int a = 1 + 2; if constexpr (a > 2) g(); }", true),
        ("void f() { const int a = 1 + 2; const int b = a; int c[b]; }", true),
        // This lambda captures nothing, so it may use only constants.
        ("void f() { const int a = 1 + 2; g([] { h(a); }); }", true),
    ] {
        let source = cpp(text);
        let found = source.mutants().iter().find(|found| found.mutant.original() == "1 + 2").unwrap();
        let reason = "evaluated at compile time";
        assert_eq!(found.ignored.as_deref(), is_needed.then_some(reason), "{text}");
        let emitted = source.emit(1, &BTreeSet::new()).text;
        assert_eq!(emitted.contains("(__hg_at("), !is_needed, "{emitted}");
    }
    // The compiler may evaluate this function, and needs the values that do not depend on its arguments.
    let emitted = cpp("constexpr int f(int a) { const int b = a + 2; return b; }").emit(1, &BTreeSet::new());
    assert!(!emitted.text.contains("__hg_at("), "{}", emitted.text);
}

#[test]
fn shifts_have_mutants_where_they_are_no_streams() {
    for (text, count) in [
        ("auto f() { return a << 2; }", 1),
        ("auto f() { a = b >> 1; }", 2),
        ("auto f() { return std::cout << a; }", 0),
        ("auto f() { return a << b << c; }", 0),
        ("auto f() { return a << \"b\"; }", 0),
        ("auto f() { return this->stream_ << a; }", 0),
        // The statement can be deleted.
        ("auto f() { a << b; }", 1),
        // The condition can be false.
        ("auto f() { while (a >> b) {} }", 1),
        ("std::ostream &operator<<(std::ostream &a, B b) { return a << b; }", 0),
    ] {
        assert_eq!(cpp(text).mutants().len(), count, "{text}: {:?}", lines(&cpp(text)));
    }
}

#[test]
fn items_have_the_names_of_their_namespaces_and_classes() {
    let source = cpp(
        "namespace a { namespace { class B { void c() { g(); } struct D { ~D() { g(); } }; }; } template <class T> struct E<T *> { bool operator==(int) { g(); } }; }\nvoid a::b::F::g() { h(); }\nextern \"C\" { void i() { g(); } }\nclass J;\n",
    );
    let items: BTreeSet<_> = source.mutants().iter().map(|found| found.mutant.item.to_string()).collect();
    let expected = ["a::B::c", "a::B::D::~D", "a::E::operator==", "a::b::F::g", "i"];
    assert_eq!(items, expected.map(str::to_owned).into());
    assert_eq!(source.modules(), []);
}

#[test]
fn guards_are_constant_where_the_compiler_runs_them_and_conditions_have_any_type() {
    let source = cpp("auto f(int a) { if (a < 1) { g(); } return !b; }");
    let emitted = source.emit(1, &BTreeSet::new());
    assert_eq!(
        emitted.text,
        "auto f(int a) { if ((__hg(1,2)==1 ? (1) : __hg_is(2) ? (0) : !!((__hg(3,2)==1 ? (__HG_TYPE(((a) <= (1)), (a < 1)) ((a) <= (1))) : __hg_is(4) ? (__HG_TYPE(((a) >= (1)), (a < 1)) ((a) >= (1))) : (a < 1))))) { if (__hg(5,1)==0) { g(); } } return (__hg(6,1)==1 ? (!!(b)) : (!b)); }"
    );
}

fn runtime() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../mutate/src/c/heeler_guard.h")
}

fn compile(directory: &Path, compiler: &str, source: &str, text: &str, options: &[&str]) -> Output {
    fs::write(directory.join(source), text).unwrap();
    let traps = ["-fsanitize=return", "-fsanitize-undefined-trap-on-error"];
    let fixed = ["-w", "-fno-diagnostics-show-caret", "-fdiagnostics-column-unit=byte", "-include"];
    Command::new(compiler)
        .args(options)
        .args(traps.iter().filter(|_| compiler == "g++"))
        .args(fixed)
        .arg(runtime())
        .arg(source)
        .env("LC_ALL", "C")
        .current_dir(directory)
        .output()
        .unwrap()
}

fn errors(output: &Output) -> Vec<CompilerError> {
    compiler::gnu::errors(&String::from_utf8_lossy(&output.stderr))
}

/// Withdraws mutants until the source compiles; returns the withdrawn mutants and the number of rounds.
fn withdrawn(source: &MutatedSource, directory: &Path, options: &[&str]) -> (BTreeSet<usize>, u32) {
    let keys = source.mutants().iter().enumerate();
    let mut rollback =
        Rollback::new(keys.map(|(mutant, found)| (MutantKey { source: 0, mutant }, found.function)));
    loop {
        let emitted = source.emit(1, &rollback.left_out(0));
        assert_eq!(emitted.withdrawn, BTreeSet::new());
        let output = compile(directory, "g++", "list.cpp", &emitted.text, options);
        let errors = errors(&output);
        assert_eq!(errors.is_empty(), output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let compiled = [CompiledSource { source, emitted: &emitted }];
        let blame = compiler::blame(&errors, &|file| (file == "list.cpp").then_some(0), &compiled);
        match rollback.next(&blame) {
            RollbackStep::Check => {}
            RollbackStep::Done => break,
            RollbackStep::Broken(words) => unreachable!("{words:?}\n{}", emitted.text),
        }
    }
    let found = rollback.withdrawn().keys().map(|key| key.mutant).collect();
    (found, rollback.rounds())
}

/// Returns the withdrawn mutants as original and replacement.
fn shown(source: &MutatedSource, withdrawn: &BTreeSet<usize>) -> Vec<String> {
    let shown = |index: &usize| {
        let mutant = &source.mutants()[*index].mutant;
        format!("{} → {}", mutant.original().lines().next().unwrap_or_default(), mutant.replacement())
    };
    withdrawn.iter().map(shown).collect::<BTreeSet<_>>().into_iter().collect()
}

#[test]
fn guarded_program_does_what_the_original_does_and_mutants_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let text = include_str!("../fixtures/features.cpp");
    let source = cpp(text);
    for options in [["-std=c++17", "-O0", "-omutated"], ["-std=c++20", "-O2", "-omutated"]] {
        let (withdrawn, rounds) = withdrawn(&source, directory.path(), &options);
        assert_eq!(
            shown(&source, &withdrawn),
            [
                "\"division by \" + std::to_string(b) → \"division by \" - std::to_string(b)",
                "\"narrow \" + std::to_string(value - 1) → \"narrow \" - std::to_string(value - 1)",
                "\"wide \" + std::to_string(value + 1) → \"wide \" - std::to_string(value + 1)",
                "pointer - array → pointer + array",
                "total + value → total - value",
            ],
            "{options:?}"
        );
        assert!(rounds <= 3, "{rounds} rounds");
        let original = compile(directory.path(), "g++", "original.cpp", text, &[options[0], "-ooriginal"]);
        assert!(original.status.success(), "{}", String::from_utf8_lossy(&original.stderr));
        let run = |program: &str, mutant: Option<usize>| {
            let mut command = Command::new(directory.path().join(program));
            // The limits end endless loops.
            command.env("HEELER_MUTANT_HITS", "100000").env("HEELER_MUTANT_STEPS", "1000000");
            if let Some(mutant) = mutant {
                command.env("HEELER_MUTANT", (mutant + 1).to_string());
            }
            let output = command.output().unwrap();
            (output.stdout, output.status)
        };
        let expected = run("original", None);
        assert_eq!(String::from_utf8_lossy(&run("mutated", None).0), String::from_utf8_lossy(&expected.0));
        let mut unnoticed = BTreeMap::new();
        for (index, found) in
            source.mutants().iter().enumerate().filter(|(index, _)| !withdrawn.contains(index))
        {
            if run("mutated", Some(index)) == expected {
                let mutant = &found.mutant;
                unnoticed.insert(
                    format!("{} {} → {}", mutant.mutator, mutant.original(), mutant.replacement()),
                    index,
                );
            }
        }
        let tested = source.mutants().len() - withdrawn.len();
        assert!(unnoticed.len() * 4 < tested, "{} of {tested}: {unnoticed:#?}", unnoticed.len());
        // With these mutants a function ends without a return, which the compiler's trap must detect.
        for noticed in ["StatementDeletion fail(); → ", "ConditionalExpression true → false"] {
            assert!(!unnoticed.contains_key(noticed), "{noticed}");
        }
    }
}

#[test]
fn mutants_of_templates_are_blamed_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let source = cpp(
        "#include <string>\n#include <vector>\nstruct A { explicit A(int); A operator+(A) const; int operator-(A) const; bool operator<(A) const; };\ntemplate <class T> T add(T a, T b) { if (a < b) { return b; } return a + b; }\nA use(A a, std::vector<A> v) { v.push_back(a); return add(a, add<A>(v[0], a)); }\nint numbers(int a) { return add(a, 2) * 3; }\nA none(int a) { return A(a + 1); }\n",
    );
    let (withdrawn, rounds) = withdrawn(&source, directory.path(), &["-fsyntax-only"]);
    assert_eq!(
        shown(&source, &withdrawn),
        [
            "a + b → a - b",
            "a < b → a <= b",
            "a < b → a >= b",
            "{ if (a < b) { return b; } return a + b; } → { return {}; }",
            "{ return A(a + 1); } → { return {}; }",
            "{ v.push_back(a); return add(a, add<A>(v[0], a)); } → { return {}; }",
        ]
    );
    assert!(rounds <= 3, "{rounds} rounds");
}

#[test]
fn mutant_of_another_type_is_blamed_and_changes_no_original() {
    let directory = tempfile::tempdir().unwrap();
    let source = cpp(
        "struct A { int a; A operator+(int b) const { return A{a + b}; } operator bool() const { return a; } };\ntemplate <class T> int first(const T &value) { return value.a; }\nint f(A a) { return first(a + 2); }\nbool g(A a) { auto b = a + 2; return b; }\ntemplate <class T> bool h(T a) { auto b = a + 3; return b; }\nbool i(A a, int b) { return h(a) && h(b); }\n",
    );
    let (withdrawn, rounds) = withdrawn(&source, directory.path(), &["-fsyntax-only"]);
    assert_eq!(shown(&source, &withdrawn), ["a + 2 → a - 2", "a + 3 → a - 3"]);
    assert_eq!((withdrawn.len(), rounds), (3, 2));
}

#[test]
fn guarded_header_is_valid_in_both_languages() {
    let directory = tempfile::tempdir().unwrap();
    let source = cpp(
        "#ifdef __cplusplus\nextern \"C\" {\n#endif\nstatic inline int low(const char *a, int b) { if (!a || b < 1) { b += 1; } while (a && b > 9) { b--; } return !b ? -b : b; }\nstatic inline const char *text(int a) { return a ? \"x\" : \"y\"; }\n#ifdef __cplusplus\n}\n#endif\n",
    );
    let emitted = source.emit(1, &BTreeSet::new());
    assert!(emitted.arms.len() > 15, "{}", emitted.arms.len());
    for (compiler, name) in [("gcc", "list.c"), ("g++", "list.cpp")] {
        let text = format!("{}int main(void) {{ return low(text(1), 2) - 2; }}\n", emitted.text);
        let output = compile(directory.path(), compiler, name, &text, &["-omain"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(Command::new(directory.path().join("main")).status().unwrap().success());
    }
}
