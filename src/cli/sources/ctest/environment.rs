//! Environment of a test, from its properties `ENVIRONMENT` and `ENVIRONMENT_MODIFICATION`.

use std::collections::BTreeMap;

/// Variables and their values; `None` unsets a variable.
pub(super) type Variables = BTreeMap<String, Option<String>>;

/// Returns the variables that a test gets on top of the surrounding environment. `current` returns the
/// surrounding value of a variable.
///
/// # Errors
/// An operation is unknown; the text names it.
pub(super) fn variables(
    environment: &[String],
    modifications: &[String],
    current: &dyn Fn(&str) -> Option<String>,
) -> Result<Variables, String> {
    // Set the variables of `ENVIRONMENT`.
    let mut set = Variables::new();
    for one in environment {
        match one.split_once('=') {
            Some((name, value)) => set.insert(name.to_owned(), Some(value.to_owned())),
            None => set.insert(one.clone(), None),
        };
    }
    // Apply the operations of `ENVIRONMENT_MODIFICATION` in order.
    let mut modified = Variables::new();
    for one in modifications {
        let parts = one.split_once('=').and_then(|(name, rest)| Some((name, rest.split_once(':')?)));
        let Some((name, (operation, value))) = parts else {
            return Err(format!("ENVIRONMENT_MODIFICATION {one:?}: expected NAME=OPERATION:VALUE"));
        };
        let before = || {
            let known = modified.get(name).cloned().flatten();
            let given = || set.get(name).cloned().unwrap_or_else(|| current(name));
            known.or_else(given).unwrap_or_default()
        };
        let value = match operation {
            "reset" => {
                modified.remove(name);
                continue;
            }
            "set" => Some(value.to_owned()),
            "unset" => None,
            "string_append" => Some(before() + value),
            "string_prepend" => Some(value.to_owned() + &before()),
            "path_list_append" => Some(append(before(), ':', value)),
            "path_list_prepend" => Some(prepend(before(), ':', value)),
            "cmake_list_append" => Some(append(before(), ';', value)),
            "cmake_list_prepend" => Some(prepend(before(), ';', value)),
            _ => {
                return Err(format!("ENVIRONMENT_MODIFICATION {one:?}: unknown operation {operation:?}"));
            }
        };
        modified.insert(name.to_owned(), value);
    }
    set.extend(modified);
    Ok(set)
}

fn append(list: String, separator: char, value: &str) -> String {
    if list.is_empty() { value.to_owned() } else { format!("{list}{separator}{value}") }
}

fn prepend(list: String, separator: char, value: &str) -> String {
    if list.is_empty() { value.to_owned() } else { format!("{value}{separator}{list}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(environment: &[&str], modifications: &[&str]) -> Result<Vec<String>, String> {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let current = |name: &str| (name == "PATH").then(|| "/bin".to_owned());
        let variables = variables(&owned(environment), &owned(modifications), &current)?;
        Ok(variables.iter().map(|(name, value)| format!("{name}={value:?}")).collect())
    }

    #[test]
    fn operations_apply_in_order_to_what_was_before() {
        for (environment, modifications, expected) in [
            (&["A=b=c"][..], &[][..], "A=Some(\"b=c\")"),
            (&[], &["PATH=path_list_append:/a", "PATH=path_list_prepend:/z"], "PATH=Some(\"/z:/bin:/a\")"),
            (&[], &["N=path_list_append:x"], "N=Some(\"x\")"),
            (&["L=a"], &["L=cmake_list_append:b", "L=cmake_list_prepend:c"], "L=Some(\"c;a;b\")"),
            (&["S=own"], &["S=string_append:>", "S=string_prepend:<"], "S=Some(\"<own>\")"),
            (&["R=own"], &["R=set:other", "R=reset:"], "R=Some(\"own\")"),
            (&["U=own"], &["U=unset:"], "U=None"),
            // As in CTest, an operation after `unset` starts from the surrounding value.
            (&["U=own"], &["U=unset:", "U=string_append:+"], "U=Some(\"own+\")"),
            (&[], &["V=set:a:b"], "V=Some(\"a:b\")"),
        ] {
            assert_eq!(of(environment, modifications).unwrap(), [expected]);
        }
        for wrong in ["A", "A=set", "A=raise:1"] {
            assert!(of(&[], &[wrong]).unwrap_err().contains(&format!("{wrong:?}")));
        }
    }
}
