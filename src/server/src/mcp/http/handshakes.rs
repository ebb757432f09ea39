//! Ids of clients that have made a handshake. Clients may never end a handshake, so the least recently used
//! one is dropped to bound memory.

use std::collections::VecDeque;

/// Maximum number of remembered handshakes.
const MAX_HANDSHAKES: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Handshakes {
    /// Most recently used last.
    ids: VecDeque<String>,
}

impl Handshakes {
    /// Adds a handshake. Returns the id of the handshake dropped to make room, if any.
    pub(super) fn add(&mut self, id: String) -> Option<String> {
        self.ids.push_back(id);
        (self.ids.len() > MAX_HANDSHAKES).then(|| self.ids.pop_front()).flatten()
    }

    /// Returns whether a handshake is known, and marks it as most recently used.
    pub(super) fn touch(&mut self, id: &str) -> bool {
        let found = self.remove(id);
        if found {
            self.ids.push_back(id.to_owned());
        }
        found
    }

    /// Removes a handshake. Returns whether it was known.
    pub(super) fn remove(&mut self, id: &str) -> bool {
        let place = self.ids.iter().position(|one| one == id);
        place.and_then(|place| self.ids.remove(place)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshake_used_the_longest_time_ago_is_forgotten() {
        let mut handshakes = Handshakes::default();
        for number in 0..MAX_HANDSHAKES {
            assert_eq!(handshakes.add(number.to_string()), None);
        }
        assert!(handshakes.touch("0") && !handshakes.touch("x"));
        assert_eq!(handshakes.add("new".to_owned()).as_deref(), Some("1"));
        assert!(handshakes.touch("0") && !handshakes.touch("1"));
        assert!(handshakes.remove("0") && !handshakes.remove("0") && !handshakes.touch("0"));
    }
}
