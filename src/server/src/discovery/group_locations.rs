//! Source locations of groups. A group has one if all of its tests are in the same file. Pure.

use std::{collections::HashMap, sync::Arc};

/// Source location of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupLocation<'a> {
    /// The file that contains all tests of the group.
    pub file: Option<&'a str>,
    /// First line of the group's tests, from 1.
    pub line: Option<u32>,
}

/// Locations of all groups of a catalogue, by uid.
#[derive(Debug, Clone, Default)]
pub(super) struct GroupLocations(HashMap<Box<str>, KnownLocation>);

/// Common location of a group's tests so far.
#[derive(Debug, Clone, PartialEq, Eq)]
enum KnownLocation {
    OneFile {
        file: Arc<str>,
        line: Option<u32>,
    },
    /// The tests are in several files, or the file of some test is unknown.
    None,
}

impl GroupLocations {
    /// Adds a test to the groups that contain it.
    pub(super) fn add<'a>(
        &mut self,
        groups: impl Iterator<Item = &'a str>,
        file: Option<&Arc<str>>,
        line: Option<u32>,
    ) {
        let of_test =
            file.map_or(KnownLocation::None, |file| KnownLocation::OneFile { file: Arc::clone(file), line });
        for group in groups {
            match self.0.get_mut(group) {
                Some(known) => known.merge(&of_test),
                None => drop(self.0.insert(group.into(), of_test.clone())),
            }
        }
    }

    pub(super) fn get(&self, group: &str) -> Option<GroupLocation<'_>> {
        match self.0.get(group)? {
            KnownLocation::OneFile { file, line } => Some(GroupLocation { file: Some(file), line: *line }),
            KnownLocation::None => None,
        }
    }
}

impl KnownLocation {
    fn merge(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::OneFile { file, line }, Self::OneFile { file: of_other, line: other_line })
                if file == of_other =>
            {
                *line = line.iter().chain(other_line).min().copied();
            }
            _ => *self = Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_is_at_the_first_line_of_its_only_file() {
        let mut locations = GroupLocations::default();
        let (a, also_a, b) = (Arc::from("a.cc"), Arc::from("a.cc"), Arc::from("b.cc"));
        for (groups, file, line) in [
            (&["s::", "s::A."][..], Some(&a), Some(9)),
            (&["s::", "s::A."], Some(&also_a), Some(3)),
            (&["s::", "s::A."], Some(&a), None),
            (&["s::", "s::B."], Some(&b), None),
            (&["s::", "s::C."], None, None),
            (&["s::", "s::C."], Some(&b), Some(1)),
        ] {
            locations.add(groups.iter().copied(), file, line);
        }
        let get = |uid| locations.get(uid).map(|GroupLocation { file, line }| (file.unwrap(), line));
        assert_eq!(get("s::A."), Some(("a.cc", Some(3))));
        assert_eq!(get("s::B."), Some(("b.cc", None)));
        assert_eq!((get("s::"), get("s::C."), get("s::D.")), (None, None, None));
    }
}
