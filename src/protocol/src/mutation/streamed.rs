//! Maps and lists whose entries are generated while they are written, so reports of large projects are never
//! completely in memory.

use serde::{Serialize, Serializer};

/// A map. The function returns its entries in order.
#[derive(Debug, Clone, Copy)]
pub struct StreamedMap<F>(pub F);

impl<F, I, K, V> Serialize for StreamedMap<F>
where
    F: Fn() -> I,
    I: IntoIterator<Item = (K, V)>,
    K: Serialize,
    V: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map((self.0)())
    }
}

/// A list. The function returns its items.
#[derive(Debug, Clone, Copy)]
pub struct StreamedList<F>(pub F);

impl<F, I> Serialize for StreamedList<F>
where
    F: Fn() -> I,
    I: IntoIterator,
    I::Item: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streamed_maps_and_lists_are_those_of_json() {
        let list = |count: u32| StreamedList(move || 0..count);
        let map = StreamedMap(|| (0..3).map(|count| (format!("{count}\""), list(count))));
        assert_eq!(serde_json::to_string(&map).unwrap(), r#"{"0\"":[],"1\"":[0],"2\"":[0,1]}"#);
    }
}
