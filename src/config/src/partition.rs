//! A partition of the tests such as `slice:2/4`, for runs spread over several machines. Only the syntax is
//! defined here; tests are assigned to partitions elsewhere.

use std::{fmt, num::NonZeroU32, path::PathBuf, str::FromStr};

use heeler_core::partition::SplitDigest;

/// How tests are assigned to partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionKind {
    /// By position in the list, round robin.
    Slice,
    /// By a hash of the test's name. A test stays in its partition when other tests are added or removed.
    Hash,
    /// By recorded durations, so that all partitions take about equally long.
    Time,
}

/// One partition of the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionSpec {
    /// How tests are assigned to partitions.
    pub kind: PartitionKind,
    /// Number of this partition, from 1.
    pub index: NonZeroU32,
    /// Number of partitions.
    pub count: NonZeroU32,
}

/// Options shared by all partitions of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SplitOptions {
    /// History file with the durations for the split. Must be the same file on all machines.
    pub history: Option<PathBuf>,
    /// Expected digest of tests and durations. The split must match it.
    pub digest: Option<SplitDigest>,
}

/// Error of parsing a partition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartitionError {
    /// The text does not have the form `KIND:k/n`.
    #[error("expected slice:k/n, hash:k/n or time:k/n, such as hash:1/4")]
    Syntax,
    /// The kind does not exist.
    #[error("unknown partition kind \"{kind}\" (available: slice, hash, time)")]
    Kind { kind: String },
    /// The number is zero or not a whole number.
    #[error("invalid partition number \"{text}\": expected 1 to 4294967295")]
    Number { text: String },
    /// The partition's number exceeds the number of partitions.
    #[error("partition {share} of {of} does not exist; partitions are numbered from 1 to {of}")]
    OutOfRange { share: u32, of: u32 },
}

impl FromStr for PartitionSpec {
    type Err = PartitionError;

    fn from_str(text: &str) -> Result<Self, PartitionError> {
        let (kind, numbers) = text.split_once(':').ok_or(PartitionError::Syntax)?;
        let (share, of) = numbers.split_once('/').ok_or(PartitionError::Syntax)?;
        let kind = match kind {
            "slice" | "count" => PartitionKind::Slice,
            "hash" => PartitionKind::Hash,
            "time" => PartitionKind::Time,
            other => return Err(PartitionError::Kind { kind: other.to_owned() }),
        };
        let number = |text: &str| {
            text.parse::<NonZeroU32>().map_err(|_| PartitionError::Number { text: text.to_owned() })
        };
        let (share, of) = (number(share)?, number(of)?);
        if share > of {
            return Err(PartitionError::OutOfRange { share: share.get(), of: of.get() });
        }
        Ok(Self { kind, index: share, count: of })
    }
}

impl fmt::Display for PartitionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            PartitionKind::Slice => "slice",
            PartitionKind::Hash => "hash",
            PartitionKind::Time => "time",
        };
        write!(f, "{kind}:{}/{}", self.index, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_has_kind_index_and_count() {
        for text in ["slice:1/1", "hash:2/4", "time:4294967295/4294967295"] {
            assert_eq!(text.parse::<PartitionSpec>().unwrap().to_string(), text);
        }
        assert_eq!("count:1/2".parse::<PartitionSpec>().unwrap().kind, PartitionKind::Slice);
    }

    #[test]
    fn invalid_partitions_have_precise_errors() {
        for (text, message) in [
            ("2/4", "expected slice:k/n, hash:k/n or time:k/n, such as hash:1/4"),
            ("hash:2", "expected slice:k/n, hash:k/n or time:k/n, such as hash:1/4"),
            ("size:1/2", "unknown partition kind \"size\" (available: slice, hash, time)"),
            ("hash:0/4", "invalid partition number \"0\": expected 1 to 4294967295"),
            ("hash:1/x", "invalid partition number \"x\": expected 1 to 4294967295"),
            ("hash:1/-2", "invalid partition number \"-2\": expected 1 to 4294967295"),
            ("slice:5/4", "partition 5 of 4 does not exist; partitions are numbered from 1 to 4"),
        ] {
            assert_eq!(text.parse::<PartitionSpec>().unwrap_err().to_string(), message, "{text}");
        }
    }
}
