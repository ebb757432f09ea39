//! Explicit nulls: .NET serializers write `null` for members that are not set.

use serde::{Deserialize, Deserializer};

/// Reads a member and treats `null` as absent.
pub(super) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
