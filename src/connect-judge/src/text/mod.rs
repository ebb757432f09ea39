//! Messages written as text: YAML documents become the bytes of the messages that they describe.
//!
//! - [`yaml`]: a document as a tree of nodes with lines.
//! - [`message_types`]: names and numbers of the fields.
//! - [`encode_document`]: the bytes of a message that a document describes.

mod encoding;
mod json;
pub(crate) mod message_types;
mod yaml;

pub(crate) use encoding::encode_document;
pub(crate) use json::{encode_json, json_of_tree};
pub use yaml::TextError;
