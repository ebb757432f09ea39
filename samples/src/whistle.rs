//! Whistle commands for a herding dog.

/// A command to the dog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Come by: clockwise around the herd.
    ComeBy,
    /// Away: counter-clockwise around the herd.
    Away,
    /// Lie down.
    LieDown,
    /// Walk up to the sheep.
    WalkUp,
    /// That'll do: return to the shepherd.
    ThatllDo,
}

/// Parses a melody of `-` (long), `.` (short) and `/` (rising); `None` if it is not a command.
pub fn listen(melody: &str) -> Option<Command> {
    Some(match melody {
        "/." => Command::ComeBy,
        "-/" => Command::Away,
        "-" => Command::LieDown,
        ".." => Command::WalkUp,
        "./-" => Command::ThatllDo,
        _ => return None,
    })
}

/// Parses melodies separated by blanks; skips unknown ones.
pub fn listen_to_all(melodies: &str) -> Vec<Command> {
    melodies.split_whitespace().filter_map(listen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_long_tone_is_lie_down() {
        assert_eq!(listen("-"), Some(Command::LieDown));
    }

    #[test]
    fn two_short_tones_are_walk_up() {
        assert_eq!(listen(".."), Some(Command::WalkUp));
    }

    #[test]
    fn come_by_and_away_differ() {
        assert_ne!(listen("/."), listen("-/"));
    }

    #[test]
    fn silence_means_nothing() {
        assert_eq!(listen(""), None);
    }

    #[test]
    fn an_unknown_melody_means_nothing() {
        assert_eq!(listen("-.-.-"), None);
    }

    #[test]
    fn melodies_are_heard_in_order() {
        assert_eq!(listen_to_all("/. .. ./-"), [Command::ComeBy, Command::WalkUp, Command::ThatllDo]);
    }

    #[test]
    fn noise_between_melodies_is_not_heard() {
        assert_eq!(listen_to_all("- wind -"), [Command::LieDown, Command::LieDown]);
    }

    #[test]
    fn a_dog_far_away_hears_late_but_hears() {
        std::thread::sleep(std::time::Duration::from_millis(900));
        assert_eq!(listen("./-"), Some(Command::ThatllDo));
    }
}
