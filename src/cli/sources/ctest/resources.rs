//! Resources for tests with the property `RESOURCE_GROUPS`, from CTest's resource spec file.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use heeler_core::batching::units_suffice;
use heeler_protocol::{
    control::{OsText, ResourceUnit},
    ctest::{CtestProperties, GROUP_COUNT_VARIABLE, read_resource_spec},
};

use super::{SourcesError, TEST_FILE};

/// CTest's option that names the file.
const SPEC_OPTION: &str = "--resource-spec-file";
/// Beginning of the line of a build folder's test file that names the spec file of the project. CMake writes
/// the line if the project sets the variable.
const SPEC_SETTING: &str = "set(CTEST_RESOURCE_SPEC_FILE \"";

/// The units of each resource; `None` without a spec file, when CTest ignores the resources of tests.
#[derive(Debug, Default)]
pub(super) struct ResourceSpec(Option<BTreeMap<String, Vec<ResourceUnit>>>);

impl ResourceSpec {
    /// Reads the resource spec file of a build folder, if there is one. `args` are arguments of CTest.
    pub(super) fn read(dir: &Path, args: &[OsText]) -> Result<Self, SourcesError> {
        let test_file = || std::fs::read_to_string(dir.join(TEST_FILE)).unwrap_or_default();
        let Some(path) = path_in_arguments(args).or_else(|| path_in_test_file(&test_file())) else {
            return Ok(Self(None));
        };
        let path = dir.join(path);
        let json = std::fs::read(&path)
            .map_err(|source| SourcesError::ResourceSpecFile { path: path.clone(), source })?;
        let spec = read_resource_spec(&json).map_err(|source| SourcesError::ResourceSpec { path, source })?;
        Ok(Self(Some(spec)))
    }

    /// Returns the units of each resource.
    pub(super) fn units(&self) -> BTreeMap<String, Vec<ResourceUnit>> {
        self.0.clone().unwrap_or_default()
    }

    /// Returns the number of groups of a test without any, as CTest sets it if it knows the resources.
    /// Otherwise CTest removes the variable from its own environment. `variable` returns the surrounding
    /// value of a variable.
    pub(super) fn group_count(
        &self,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Option<(String, Option<String>)> {
        let name = GROUP_COUNT_VARIABLE.to_owned();
        match self.0 {
            Some(_) => Some((name, Some("0".to_owned()))),
            None => variable(GROUP_COUNT_VARIABLE).map(|_| (name, None)),
        }
    }

    /// Returns why the resources do not suffice for a test that would run, or `None` if they do.
    pub(super) fn lacking(&self, test: &CtestProperties) -> Option<String> {
        let spec = self.0.as_ref().filter(|_| !test.is_disabled)?;
        let mut portions: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for (kind, amount) in test.resource_groups.iter().flatten() {
            portions.entry(kind).or_default().push(*amount);
        }
        portions.into_iter().find_map(|(kind, portions)| {
            let Some(units) = spec.get(kind) else {
                return Some(format!("insufficient resources: there is no \"{kind}\""));
            };
            let amounts: Vec<u32> = units.iter().map(|unit| unit.amount).collect();
            let text = |amounts: &[u32]| amounts.iter().map(u32::to_string).collect::<Vec<_>>().join(" + ");
            (!units_suffice(&amounts, &portions)).then(|| {
                let (needed, there) = (text(&portions), text(&amounts));
                format!("insufficient resources: needs {needed} of \"{kind}\", but the units have {there}")
            })
        })
    }
}

/// Returns the path that the last of these arguments sets.
fn path_in_arguments(args: &[OsText]) -> Option<PathBuf> {
    let next = args.iter().skip(1).map(Some).chain([None]);
    let path = |(word, next): (&OsText, Option<&OsText>)| {
        let word = word.to_text();
        match word.strip_prefix(SPEC_OPTION)? {
            "" => next.map(|next| next.as_path().to_owned()),
            value => value.strip_prefix('=').map(PathBuf::from),
        }
    };
    args.iter().zip(next).filter_map(path).last()
}

fn path_in_test_file(text: &str) -> Option<PathBuf> {
    let path = text.lines().find_map(|line| line.strip_prefix(SPEC_SETTING)?.strip_suffix("\")"))?;
    let mut unescaped = String::new();
    let mut characters = path.chars();
    while let Some(character) = characters.next() {
        unescaped.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    (!unescaped.is_empty()).then(|| PathBuf::from(unescaped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spec_file_is_named_by_an_argument_or_the_project() {
        let of = |words: &[&str]| {
            let words: Vec<OsText> = words.iter().map(|word| OsText::from(*word)).collect();
            path_in_arguments(&words)
        };
        assert_eq!(of(&["-C", "Debug"]), None);
        assert_eq!(of(&["-C", "Debug", "--resource-spec-file", "a.json"]), Some("a.json".into()));
        assert_eq!(of(&["--resource-spec-file=a", "--resource-spec-file=/b"]), Some("/b".into()));
        let in_file =
            |path: &str| path_in_test_file(&format!("# x\n{SPEC_SETTING}{path}\")\nadd_test(a b)\n"));
        assert_eq!(in_file("/w/s.json"), Some("/w/s.json".into()));
        assert_eq!(in_file(r#"/w\"\\s"#), Some(r#"/w"\s"#.into()));
        assert_eq!((in_file(""), path_in_test_file("add_test(a b)")), (None, None));
    }

    #[test]
    fn resources_suffice_if_each_requirement_fits_into_a_unit() {
        let unit = |id: &str, amount| ResourceUnit { id: id.to_owned(), amount };
        let spec = BTreeMap::from([("gpus".to_owned(), vec![unit("0", 2), unit("1", 4)])]);
        let spec = ResourceSpec(Some(spec));
        let lacks = |kind: &str, amounts: &[u32]| {
            let groups = amounts.iter().map(|amount| vec![(kind.to_owned(), *amount)]).collect();
            spec.lacking(&CtestProperties { resource_groups: groups, ..CtestProperties::default() })
        };
        assert_eq!(lacks("gpus", &[2, 1, 3]), None);
        let expected = "insufficient resources: needs 3 + 3 of \"gpus\", but the units have 2 + 4";
        assert_eq!(lacks("gpus", &[3, 3]).as_deref(), Some(expected));
        let expected = "insufficient resources: there is no \"tpus\"";
        assert_eq!(lacks("tpus", &[1]).as_deref(), Some(expected));
    }

    #[test]
    fn variable_of_tests_without_groups_is_as_in_ctest() {
        let count = |spec, outside: Option<&str>| {
            let outside = outside.map(str::to_owned);
            ResourceSpec(spec).group_count(&|_| outside.clone()).map(|(_, value)| value)
        };
        let known = || Some(BTreeMap::new());
        assert_eq!(count(known(), None), Some(Some("0".to_owned())));
        assert_eq!(count(known(), Some("3")), Some(Some("0".to_owned())));
        assert_eq!([count(None, None), count(None, Some("3"))], [None, Some(None)]);
    }
}
