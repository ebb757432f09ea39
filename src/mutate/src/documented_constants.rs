//! Finds `const fn`s that documentation tests call in constants. Such tests would not compile, and would be
//! left out, if the guards removed `const`.

use std::{collections::BTreeSet, path::Path};

use crate::module_tree::MutatedProject;
use heeler_mutant::compiler::FunctionKey;
use heeler_mutant_model::Language;

/// Returns the `const fn`s that documentation may call in const contexts.
pub(crate) fn documented_constants(project: &MutatedProject) -> BTreeSet<FunctionKey> {
    let mut names = BTreeSet::new();
    for source in &project.sources {
        let file = source.source.file();
        if file.language != Language::Rust {
            continue;
        }
        let comment = |line: &str| {
            let line = line.trim_start();
            line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(|rest| format!("{rest}\n"))
        };
        add_names(&file.text.lines().filter_map(comment).collect::<String>(), &mut names);
        let directory = project.root.join(&*file.path);
        for included in file.text.split("include_str!(\"").skip(1) {
            let path = included.split('"').next().unwrap_or_default();
            // An unreadable file contains no tests.
            let text = directory.parent().unwrap_or(Path::new("")).join(path);
            add_names(&std::fs::read_to_string(text).unwrap_or_default(), &mut names);
        }
    }
    let mut found = BTreeSet::new();
    for (source, one) in project.sources.iter().enumerate() {
        for (function, declared) in one.source.functions().iter().enumerate() {
            let name = declared.item.rsplit("::").next().unwrap_or_default();
            if declared.is_constant && names.contains(name) {
                found.insert(FunctionKey { source, function });
            }
        }
    }
    found
}

/// Adds the functions called in the values of constants and statics.
fn add_names(text: &str, names: &mut BTreeSet<String>) {
    for word in ["const ", "static "] {
        for (at, _) in text.match_indices(word) {
            let statement = text[at..].split(';').next().unwrap_or_default();
            // Skips functions, and declarations without a value.
            let Some((_, value)) = statement.split_once('=') else { continue };
            for (end, _) in value.match_indices('(') {
                let before = value[..end].trim_end();
                let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
                let name = before.len() - before.trim_end_matches(is_part).len();
                names.insert(before[before.len() - name..].to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_in_values_of_constants_are_found() {
        let mut names = BTreeSet::new();
        add_names(
            "const A: u8 = a::f(1)\n + g::<u8>(2);\nlet b = h();\nstatic C: D = D::new(k());",
            &mut names,
        );
        assert_eq!(names, ["", "f", "k", "new"].map(str::to_owned).into());
    }
}
