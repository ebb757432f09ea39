//! The clients that have made a handshake, by the id that each was given. A client that forgets to end its
//! handshake costs a bounded amount of memory: the one that was used the longest time ago is forgotten.

use std::collections::VecDeque;

/// Maximum number of handshakes that are remembered.
const MAX_HANDSHAKES: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Handshakes {
    /// The one that was used last is at the end.
    ids: VecDeque<String>,
}

impl Handshakes {
    /// Remembers a handshake; returns the id of one that is forgotten for it.
    pub(super) fn add(&mut self, id: String) -> Option<String> {
        self.ids.push_back(id);
        (self.ids.len() > MAX_HANDSHAKES).then(|| self.ids.pop_front()).flatten()
    }

    /// Returns whether a handshake is known, which is then the one used last.
    pub(super) fn touch(&mut self, id: &str) -> bool {
        let found = self.remove(id);
        if found {
            self.ids.push_back(id.to_owned());
        }
        found
    }

    /// Forgets a handshake; returns whether it was known.
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
