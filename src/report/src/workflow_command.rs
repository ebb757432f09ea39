//! Escapes text in workflow commands of GitHub Actions.

/// Escapes the message of a workflow command.
#[must_use]
pub fn escape_message(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes a property of a workflow command.
#[must_use]
pub fn escape_property(text: &str) -> String {
    escape_message(text).replace(':', "%3A").replace(',', "%2C")
}
