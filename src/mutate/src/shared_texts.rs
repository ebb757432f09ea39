//! Interns texts that many mutants share.

use std::{collections::HashSet, sync::Arc};

/// A set of interned texts.
#[derive(Debug, Default)]
pub struct SharedTexts(HashSet<Arc<str>>);

impl SharedTexts {
    /// Returns the interned copy of a text.
    pub fn share(&mut self, text: impl Into<Arc<str>>) -> Arc<str> {
        let text = text.into();
        if let Some(known) = self.0.get(&text) {
            return Arc::clone(known);
        }
        self.0.insert(Arc::clone(&text));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_held_once() {
        let mut texts = SharedTexts::default();
        let [first, other, again] = ["a", "b", "a"].map(|text| texts.share(text));
        assert!(Arc::ptr_eq(&first, &again) && !Arc::ptr_eq(&first, &other));
    }
}
